"""What other modes would do to the error of ops by themselves: a pass over the kept samples for each mode."""

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

# Ops with a smaller error of their own are healthy: no other mode is tried for them.
LEAST = 0.01


def mode_errors(
    adapter: Adapter,
    space: TuningSpace,
    config: QuantConfig | None,
    contexts: Mapping[str, OpContext],
    errors: Mapping[str, float],
) -> dict[str, dict[str, float]] | None:
    """By mode the error of each op that could run so, and under an empty name that which it has.

    Only ops whose error in `errors` is large are tried, so that a healthy model costs nothing. None if there are none.
    A failure costs a diagnosis just this.
    """
    able = [op for op in space.ops if config is not None and config[op.name].calibrated and errors[op.name] > LEAST]
    offered = {op.name: op for op in adapter.ops()}
    others = {op.name: found for op in able if (found := _others(op, offered[op.name]))}
    if config is None or not others or not adapter.probe_samples:
        return None
    picks = {"": {name: config[name] for name in others}}
    for mode in MODES[1:]:
        picks[mode] = {name: found[mode] for name, found in others.items() if mode in found}
    try:
        return {mode: _errors(adapter, config, given, contexts) for mode, given in picks.items() if given}
    except Exception:
        log.warning("what other modes would bring cannot be told", exc_info=True)
        return None


def _others(op: Op, offered: Op) -> dict[str, OpConfig]:
    """The first choice of each other mode that the rules leave an op.

    What the framework offers behind fp32 is slower than that, and nothing to advise.
    """
    paying = offered.choices[: offered.choices.index(FLOAT)]
    found: dict[str, OpConfig] = {}
    for choice in op.choices:
        if choice.quantized and not choice.calibrated and choice in paying:
            found.setdefault(choice.mode, choice)
    return found


def _errors(
    adapter: Adapter, config: QuantConfig, given: Mapping[str, OpConfig], contexts: Mapping[str, OpContext]
) -> dict[str, float]:
    """The error of ops that run so, measured as that in the table is.

    In another mode an op writes float. Where others read that in integers they round it as before, which counts.
    """
    alone = QuantConfig((name, replace(given[name], repairs=()) if name in given else FLOAT) for name in config)
    run = abilities.inspect_quantized(adapter, alone).local(list(given), ())
    records = {name: OpRecord(contexts[name], None, {}) for name in given}
    read = readers(contexts)
    rounded = {name: contexts[name].writes for name in given if read.get(name)}
    seen = 0
    for feed in adapter.probe_samples[
        : -(-len(adapter.probe_samples) // 2)
    ]:  # an op's own error hardly depends on which samples it sees
        for name, (before, after) in run(feed).ops.items():
            scale = None if isinstance(after, QuantizedTensor) else rounded.get(name)
            if after is not None and scale is not None:
                after = quantized(as_float(after), scale.parameters)
            records[name].add(before, after, None, count_samples(feed), seen)
        seen += count_samples(feed)
    return {name: record.error for name, record in records.items()}


def repaired_errors(
    adapter: Adapter, space: TuningSpace, config: QuantConfig | None
) -> dict[str, dict[str, float]] | None:
    """By repair the error of each op that could be given it, and under an empty name that without.

    None if there is nothing to repair. A failure costs a diagnosis just this.
    """
    able = [op for op in space.ops if config is not None and op.repairs and config[op.name].quantized]
    if config is None or not able or not adapter.probe_samples:
        return None
    bare = {op.name: replace(config[op.name], repairs=()) for op in able}
    alone = QuantConfig((name, bare.get(name, FLOAT)) for name in config)
    found: dict[str, dict[str, float]] = {}
    try:
        for spelled in ("", *dict.fromkeys(one for op in able for one in op.repairs)):
            given = {op.name: pick for op in able if (pick := op.repaired(bare[op.name], spelled)) != bare[op.name]}
            errors = abilities.local_errors(adapter, alone.replace(given))
            names = given if spelled else bare
            found[spelled] = {name: _relative(*errors[name]) for name in names}
    except Exception:
        log.warning("what repairs would bring cannot be told", exc_info=True)
        return None
    return found


def _relative(noise: float, signal: float) -> float:
    return noise / signal if signal > 0 else noise
