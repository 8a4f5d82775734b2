"""The ways in which ops run that take different times: each precision, with calibrated ranges or between floats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from quaver.ops import MODES, OpConfig, QuantConfig
from quaver.space import TuningSpace
from quaver.time_model import TimeModel

Seconds = Mapping[str, float]


def way(choice: OpConfig) -> str:
    """What a reduced choice has in common with others that take as long: "int8", "int8 dynamic", ..."""
    return str(choice.precision) if choice.mode == MODES[0] else f"{choice.precision} {choice.mode}"


def ways(space: TuningSpace) -> dict[str, QuantConfig]:
    """For each way that reads and writes floats, the all-int8 configuration with the ops run so that can be."""
    found: dict[str, dict[str, OpConfig]] = {}
    for op in space.ops:
        for choice in op.reduced_choices:
            if not choice.calibrated:
                found.setdefault(way(choice), {}).setdefault(op.name, choice)
    plain = space.all_int8()
    return {name: plain.replace(changes) for name, changes in found.items()}


def others(space: TuningSpace) -> list[QuantConfig]:
    """What has to be profiled besides the float model and the all-int8 one."""
    plain = space.all_int8()
    return [config for config in dict.fromkeys(ways(space).values()) if config != plain]


def seconds_of(space: TuningSpace, plain: TimeModel, taken: Sequence[tuple[Seconds, Seconds]]) -> dict[str, Seconds]:
    """Seconds of ops in each way.

    Args:
        space: of all choices.
        plain: the time model of the all-int8 configuration.
        taken: for each of `others`, seconds of each op in fp32 and so. What counts is the ratio of the two.
    """
    known = dict(zip(others(space), taken, strict=True))
    found: dict[str, Seconds] = {}
    for name, config in ways(space).items():
        fp32, reduced = known.get(config, (plain.fp32, plain.reduced))
        so = [op for op in config.reduced_ops if way(config[op]) == name]
        found[name] = {op: plain.fp32[op] * reduced[op] / fp32[op] if fp32[op] > 0 else reduced[op] for op in so}
    return found


def by_the_clock(profiled: Seconds, whole: float) -> Seconds:
    """Seconds of ops such that they add up to what the clock says: the profiler has a price of its own."""
    scale = whole / (sum(profiled.values()) or 1.0)
    return {name: scale * seconds for name, seconds in profiled.items()}


def priced(model: TimeModel, config: QuantConfig, known: Mapping[str, Seconds]) -> TimeModel:
    """The model with the times of ops as a configuration runs them; a way that nobody timed is no faster than fp32."""
    changed = {
        name: known.get(way(pick), {}).get(name, model.fp32[name])
        for name, pick in config.items()
        if pick.reduced and not pick.calibrated and name in model.fp32
    }
    return replace(model, reduced={**model.reduced, **changed}) if changed else model
