"""What each op takes in fp32 and reduced, measured in turns until it does not fall any more.

A processor has slow spells of a tenth of a second and more, in which everything takes half as long again: one profile
may lie in one altogether. The least of several that lie apart is what an op takes.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence

from quaver.adapters import Adapter, abilities
from quaver.engine.timing import latency
from quaver.ops import QuantConfig
from quaver.time_model import Edge, TimeModel
from quaver.types import Feed, PlainDict

# Rounds to take at least and at most.
ROUNDS = (3, 7)
# Two rounds that lower the sum of all ops by no more than this part have told enough.
ENOUGH = 0.01

Seconds = Mapping[str, float]


def op_times(adapter: Adapter, config: QuantConfig) -> tuple[Seconds, Seconds]:
    """Seconds of each op in fp32 and as in `config`, on one thread; what belongs to no op is under the empty name."""
    fp32, quantized = _least(adapter, (None, config))
    return fp32, quantized


def least_seconds(adapter: Adapter, config: QuantConfig) -> Seconds:
    """The same of a single configuration."""
    return _least(adapter, (config,))[0]


def _least(adapter: Adapter, configs: Sequence[QuantConfig | None]) -> list[dict[str, float]]:
    least: list[dict[str, float]] = [{} for _ in configs]
    sums: list[float] = []
    for done in range(1, ROUNDS[1] + 1):
        for known, which in zip(least, configs, strict=True):
            for name, seconds in adapter.op_seconds(which, threads=1).items():
                known[name] = min(seconds, known.get(name, seconds))
        sums.append(sum(sum(known.values()) for known in least))
        if done >= ROUNDS[0] and sums[-1] >= (1.0 - ENOUGH) * sums[-3]:
            break
    return least


# So many mixtures of fp32 and reduced ops tell what conversions cost.
MIXTURES = 4
# Seconds for each whole model: what conversions cost is told in steps of two.
SECONDS = 0.2
# Where one precision gives way to the other along the graph, and how often single ops stand out.
SWITCH, ODD = (0.1, 0.25, 0.5), 0.1


def measure_time_model(adapter: Adapter, config: QuantConfig, feed: Feed) -> TimeModel:
    """Times of ops by the runtime's profiler, of whole models by the clock; all on one thread."""
    fp32, quantized = op_times(adapter, config)
    between, alone = borders(adapter, feed), absorbed(config, fp32)
    apart = least_seconds(adapter, config.fallback(*alone)) if alone and between else {}
    models = [adapter.assemble(one).with_threads(1) for one in (None, config, *mixtures(config))]
    whole = [taken.seconds for taken in latency.measure(models, feed, SECONDS * len(models))]
    scale = whole[1] / (sum(quantized.values()) or 1.0)
    between = split_fused(between, fp32, {name: scale * apart[name] for name in alone if name in apart})
    return put_together(fp32, quantized, config, whole, between)


def absorbed(config: QuantConfig, fp32: Seconds) -> list[str]:
    """The ops that take no time in the float model: another one's kernel does what they do."""
    return [name for name in config.quantized_ops if config[name].calibrated and not fp32.get(name, 0.0)]


def split_fused(between: Iterable[Edge], fp32: Seconds, apart: Seconds) -> tuple[Edge, ...]:
    """The tensors between ops, with what their readers take once they are no longer in the kernel of who writes it."""
    left = {name: seconds for name, seconds in apart.items() if not fp32.get(name, 0.0)}
    found = []
    for border in between:
        own = left if fp32.get(border.producer, 0.0) else {}
        alone = tuple(own.pop(name, 0.0) for name in border.readers)
        found.append(border._replace(apart=alone if any(alone) else ()))
    return tuple(found)


def put_together(
    fp32: Mapping[str, float],
    quantized: Mapping[str, float],
    config: QuantConfig,
    whole: Sequence[float],
    between: tuple[Edge, ...],
) -> TimeModel:
    """The time model from the times of ops (what belongs to none under the empty name) and of whole models.

    `whole` are seconds of the float model, of `config` and of its mixtures.
    """
    # The profiler has a price of its own; what the clock says is divided as the profiler says.
    scale = whole[0] / (sum(fp32.values()) or 1.0), whole[1] / (sum(quantized.values()) or 1.0)
    model = TimeModel(
        {name: scale[0] * seconds for name, seconds in fp32.items() if name},
        {name: scale[1] * seconds for name, seconds in quantized.items() if name},
        (scale[0] * fp32[""] + scale[1] * quantized[""]) / 2,
        between,
    )
    return model.fitted(list(zip((config, *mixtures(config)), whole[1:], strict=True)))


def to_dict(model: TimeModel) -> PlainDict:
    """A time model as builtins."""
    return {
        "fp32": dict(model.fp32),
        "reduced": dict(model.quantized),
        "rest": model.rest,
        "borders": [(border.producer, border.readers, border.elements, border.apart) for border in model.borders],
        "costs": model.costs,
        "fit": model.fit,
    }


def from_dict(data: PlainDict) -> TimeModel:
    """A time model from builtins."""
    between = tuple(
        Edge(producer, tuple(readers), elements, *map(tuple, apart))
        for producer, readers, elements, *apart in data["borders"]
    )
    return TimeModel(data["fp32"], data["reduced"], data["rest"], between, tuple(data["costs"]), data["fit"])


def mixtures(config: QuantConfig) -> list[QuantConfig]:
    """Stretches of either precision along the graph, the same ones every time."""
    rng, names = random.Random(0), config.quantized_ops
    found = []
    for _ in range(MIXTURES):
        switch, fp32, fallen = rng.choice(SWITCH), rng.random() < 0.5, []
        for name in names:
            fp32 = rng.random() < 0.5 if rng.random() < switch else fp32
            if fp32 != (rng.random() < ODD):
                fallen.append(name)
        found.append(config.fallback(*fallen))
    return [one for one in dict.fromkeys(found) if one != config and one.quantized_ops]


def borders(adapter: Adapter, feed: Feed) -> tuple[Edge, ...]:
    """The tensors between ops, as large as they are for one feed."""
    int8_edges = abilities.int8_edges(adapter)
    if not int8_edges:
        return ()
    sizes = {name: int(values.size) for name, values in adapter.record_outputs(None, list(int8_edges))(feed).items()}
    return tuple(Edge(producer, readers, sizes[producer]) for producer, readers in int8_edges.items())
