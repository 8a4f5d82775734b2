"""Measure the time of each op in fp32 and quantized, and make a time model of these times.

A processor has slow phases of 0.1 s and more, in which everything takes 1.5x as long, and a whole profile may fall into
one. Therefore profiles are interleaved, and the time of an op is its lowest of several.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from quaver.adapters import Adapter, abilities
from quaver.engine.timing import latency
from quaver.ops import QuantConfig
from quaver.time_model import Edge, TimeModel
from quaver.types import Feed, PlainDict

# Bounds on the number of profiles of each config. Judgement.
MIN_ROUNDS, MAX_ROUNDS = 3, 7
# Profiling ends when two more rounds lower the sum of all ops by no more than this part. Judgement.
STEADY_SUM = 0.01
# Number of mixed-precision configs to time. Judgement: only one factor, the cost of conversions, is fitted to them.
MIXED_CONFIGS = 4
# Seconds of inference for each whole model. Judgement: conversion costs are fitted in factors of two.
SECONDS = 0.2
# The mixed configs: how often one precision changes to the other along the graph, and how often a single op differs.
SWITCH_RATES, ODD_OP_RATE = (0.1, 0.25, 0.5), 0.1

Seconds: TypeAlias = Mapping[str, float]
"""Seconds by op; those of nodes that belong to no op are under the empty name."""


def op_times(adapter: Adapter, config: QuantConfig) -> tuple[Seconds, Seconds]:
    """Return the seconds of each op in fp32 and as in `config`, on one thread."""
    fp32, quantized = _least_op_seconds(adapter, (None, config))
    return fp32, quantized


def least_seconds(adapter: Adapter, config: QuantConfig) -> Seconds:
    """Return the seconds of each op as in `config`, on one thread."""
    return _least_op_seconds(adapter, (config,))[0]


def _least_op_seconds(adapter: Adapter, configs: Sequence[QuantConfig | None]) -> list[dict[str, float]]:
    """Return the least seconds of each op in several interleaved profiles."""
    least: list[dict[str, float]] = [{} for _ in configs]
    sums: list[float] = []
    for rounds in range(1, MAX_ROUNDS + 1):
        for times, config in zip(least, configs, strict=True):
            for name, seconds in adapter.op_seconds(config, threads=1).items():
                times[name] = min(seconds, times.get(name, seconds))
        sums.append(sum(sum(times.values()) for times in least))
        if rounds >= MIN_ROUNDS and sums[-1] >= (1.0 - STEADY_SUM) * sums[-3]:
            break
    return least


def measure_time_model(
    adapter: Adapter, config: QuantConfig, feed: Feed, float_config: QuantConfig | None = None
) -> TimeModel:
    """Measure ops with the runtime's profiler and whole models by the clock, all on one thread.

    Args:
        adapter: builds the models.
        config: the configuration whose quantized ops are timed.
        feed: the input.
        float_config: how ops run that are not quantized; None for fp32.
    """
    floats, quantized = _least_op_seconds(adapter, (float_config, config))
    edges, fused = measure_edges(adapter, feed), fused_ops(config, floats)
    apart = least_seconds(adapter, _in_float(config, config.fallback(*fused), float_config)) if fused and edges else {}
    mixed = [_in_float(config, candidate, float_config) for candidate in mixed_precision_configs(config)]
    configs = (float_config, config, *mixed, *([] if float_config is None else [None]))
    models = [adapter.assemble(candidate).with_threads(1) for candidate in configs]
    whole = [measured.seconds for measured in latency.measure(models, feed, SECONDS * len(models))]
    fp32_model = None if float_config is None else whole.pop()
    scale = whole[1] / (sum(quantized.values()) or 1.0)
    edges = split_fused(edges, floats, {name: scale * apart[name] for name in fused if name in apart})
    return replace(make_time_model(floats, quantized, config, whole, edges), fp32_model=fp32_model)


def _in_float(config: QuantConfig, fallen: QuantConfig, float_config: QuantConfig | None) -> QuantConfig:
    """Return `config`, with ops that are not quantized in `fallen` in the float precision of `float_config`."""
    if float_config is None:
        return fallen
    return config.replace(
        {name: float_config[name] for name in config if config[name].quantized != fallen[name].quantized}
    )


def fused_ops(config: QuantConfig, fp32: Seconds) -> list[str]:
    """Return the ops that take no time in the float model: the kernel of another op does their work."""
    return [name for name in config.quantized_ops if config[name].calibrated and not fp32.get(name, 0.0)]


def split_fused(edges: Iterable[Edge], fp32: Seconds, apart: Seconds) -> tuple[Edge, ...]:
    """Return the edges with the seconds that fused readers take once they leave the kernel of their producer."""
    left = {name: seconds for name, seconds in apart.items() if not fp32.get(name, 0.0)}
    split = []
    for edge in edges:
        seconds = left if fp32.get(edge.producer, 0.0) else {}
        by_reader = tuple(seconds.pop(name, 0.0) for name in edge.readers)
        split.append(edge._replace(apart=by_reader if any(by_reader) else ()))
    return tuple(split)


def make_time_model(
    fp32: Seconds, quantized: Seconds, config: QuantConfig, whole: Sequence[float], edges: tuple[Edge, ...]
) -> TimeModel:
    """Make a time model of the times of ops and of whole models.

    Args:
        fp32: seconds of each op in the float model.
        quantized: seconds of each op in `config`.
        config: the configuration that was profiled.
        whole: seconds of the float model, of `config` and of its mixed-precision configs, by the clock.
        edges: the tensors between ops.
    """
    # Profiling costs time itself: the time by the clock is divided in the proportions of the profile.
    scale = whole[0] / (sum(fp32.values()) or 1.0), whole[1] / (sum(quantized.values()) or 1.0)
    model = TimeModel(
        {name: scale[0] * seconds for name, seconds in fp32.items() if name},
        {name: scale[1] * seconds for name, seconds in quantized.items() if name},
        (scale[0] * fp32[""] + scale[1] * quantized[""]) / 2,
        edges,
    )
    return model.fitted(list(zip((config, *mixed_precision_configs(config)), whole[1:], strict=True)))


def to_dict(model: TimeModel) -> PlainDict:
    """Return a time model as builtins, with the keys that a history uses."""
    return {
        "fp32": dict(model.fp32),
        "reduced": dict(model.quantized),
        "rest": model.rest,
        "borders": [(edge.producer, edge.readers, edge.elements, edge.apart) for edge in model.edges],
        "costs": model.costs,
        "fit": model.fit,
        **({} if model.fp32_model is None else {"fp32_model": model.fp32_model}),
    }


def from_dict(data: PlainDict) -> TimeModel:
    """Return the time model that `to_dict` made builtins of."""
    edges = tuple(
        Edge(producer, tuple(readers), elements, *map(tuple, apart))
        for producer, readers, elements, *apart in data["borders"]
    )
    costs = tuple(data["costs"])
    return TimeModel(data["fp32"], data["reduced"], data["rest"], edges, costs, data.get("fp32_model"), data["fit"])


def mixed_precision_configs(config: QuantConfig) -> list[QuantConfig]:
    """Return configs with stretches of either precision along the graph, the same ones every time."""
    rng, names = random.Random(0), config.quantized_ops
    configs = []
    for _ in range(MIXED_CONFIGS):
        switch, fp32, fallen = rng.choice(SWITCH_RATES), rng.random() < 0.5, []
        for name in names:
            fp32 = rng.random() < 0.5 if rng.random() < switch else fp32
            if fp32 != (rng.random() < ODD_OP_RATE):
                fallen.append(name)
        configs.append(config.fallback(*fallen))
    return [mixed for mixed in dict.fromkeys(configs) if mixed != config and mixed.quantized_ops]


def measure_edges(adapter: Adapter, feed: Feed) -> tuple[Edge, ...]:
    """Return the tensors between ops, with their sizes for this feed."""
    int8_edges = abilities.int8_edges(adapter)
    if not int8_edges:
        return ()
    sizes = {name: int(values.size) for name, values in adapter.record_outputs(None, list(int8_edges))(feed).items()}
    return tuple(Edge(producer, readers, sizes[producer]) for producer, readers in int8_edges.items())
