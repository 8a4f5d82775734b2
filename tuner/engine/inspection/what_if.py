"""Measure the errors that ops would have in other modes and with repairs: a pass over the probe samples for each."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

from quaver.adapters import Adapter, abilities
from quaver.adapters.data import count_samples
from quaver.affine import QuantizedTensor, as_float, quantized
from quaver.diagnosis.causes.op_evidence import readers
from quaver.diagnosis.recorder import OpRecord
from quaver.introspection import OpContext
from quaver.ops import FLOAT, MODES, Op, OpConfig, QuantConfig
from quaver.space import TuningSpace

log = logging.getLogger(__name__)

# Ops with a smaller error of their own are healthy: no other mode is tried for them. Judgement.
MIN_ERROR = 0.01


def mode_errors(
    adapter: Adapter,
    space: TuningSpace,
    config: QuantConfig | None,
    contexts: Mapping[str, OpContext],
    errors: Mapping[str, float],
) -> dict[str, dict[str, float]] | None:
    """Return, by mode, the error of each op that could run in it, and under "" its error now.

    Only ops whose error in `errors` is large are tried, so that a healthy model costs nothing. None if there are none,
    or if measuring fails: the diagnosis then lacks only this.
    """
    able = [op for op in space.ops if config is not None and config[op.name].calibrated and errors[op.name] > MIN_ERROR]
    offered = {op.name: op for op in adapter.ops()}
    others = {op.name: choices for op in able if (choices := _others(op, offered[op.name]))}
    if config is None or not others or not adapter.probe_samples:
        return None
    picks = {"": {name: config[name] for name in others}}
    for mode in MODES[1:]:
        picks[mode] = {name: choices[mode] for name, choices in others.items() if mode in choices}
    try:
        return {mode: _errors(adapter, config, by_op, contexts) for mode, by_op in picks.items() if by_op}
    except Exception:
        log.warning("the errors in other modes could not be measured", exc_info=True)
        return None


def _others(op: Op, offered: Op) -> dict[str, OpConfig]:
    """Return the first choice of each other mode that the rules leave an op.

    Choices that the framework lists behind fp32 are slower than fp32, and no advice.
    """
    faster = offered.choices[: offered.choices.index(FLOAT)]
    by_mode: dict[str, OpConfig] = {}
    for choice in op.choices:
        if choice.quantized and not choice.calibrated and choice in faster:
            by_mode.setdefault(choice.mode, choice)
    return by_mode


def _errors(
    adapter: Adapter, config: QuantConfig, choices: Mapping[str, OpConfig], contexts: Mapping[str, OpContext]
) -> dict[str, float]:
    """Return the error of ops in these choices, measured as in the table of a diagnosis.

    In another mode an op writes float. Readers in integers round it as before, and that rounding counts.
    """
    alone = QuantConfig((name, replace(choices[name], repairs=()) if name in choices else FLOAT) for name in config)
    run = abilities.inspect_quantized(adapter, alone).local(list(choices), ())
    records = {name: OpRecord(contexts[name], None, {}) for name in choices}
    read = readers(contexts)
    rounded = {name: contexts[name].writes for name in choices if read.get(name)}
    count = 0
    for feed in adapter.probe_samples[
        : -(-len(adapter.probe_samples) // 2)
    ]:  # an op's own error hardly depends on which samples it sees
        for name, (before, after) in run(feed).ops.items():
            scale = None if isinstance(after, QuantizedTensor) else rounded.get(name)
            if after is not None and scale is not None:
                after = quantized(as_float(after), scale.parameters)
            records[name].add(before, after, None, count_samples(feed), count)
        count += count_samples(feed)
    return {name: record.error for name, record in records.items()}


def repaired_errors(
    adapter: Adapter, space: TuningSpace, config: QuantConfig | None
) -> dict[str, dict[str, float]] | None:
    """Return, by repair, the error of each op that could have it, and under "" its error without repairs.

    None if there is nothing to repair, or if measuring fails: the diagnosis then lacks only this.
    """
    able = [op for op in space.ops if config is not None and op.repairs and config[op.name].quantized]
    if config is None or not able or not adapter.probe_samples:
        return None
    bare = {op.name: replace(config[op.name], repairs=()) for op in able}
    alone = QuantConfig((name, bare.get(name, FLOAT)) for name in config)
    by_repair: dict[str, dict[str, float]] = {}
    try:
        for repair in ("", *dict.fromkeys(repair for op in able for repair in op.repairs)):
            repaired = {op.name: pick for op in able if (pick := op.repaired(bare[op.name], repair)) != bare[op.name]}
            errors = abilities.local_errors(adapter, alone.replace(repaired))
            names = repaired if repair else bare
            by_repair[repair] = {name: _relative(*errors[name]) for name in names}
    except Exception:
        log.warning("the errors with repairs could not be measured", exc_info=True)
        return None
    return by_repair


def _relative(noise: float, signal: float) -> float:
    return noise / signal if signal > 0 else noise
