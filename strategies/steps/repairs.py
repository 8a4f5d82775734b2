"""Repairs that bring the outputs nearer to the float model's: found without labels, tried before any op falls back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from quaver.ops import Op, QuantConfig
from quaver.probe import Probe
from quaver.repairs import strength_of
from quaver.space import TuningSpace
from quaver.strategies.steps.initial import CLEARLY_LESS_ERROR, TIE

# The repair that brings weights of ops in a row to like sizes.
EQUALISATION = "equalisation"
# The error of ops by themselves must fall to this part for a repair that may take time.
WELL_WORTH = 0.5
# Of such repairs those are done that bring so much of what all of them bring: each may take time.
MOST_OF_IT = 0.9


def best_repairs(config: QuantConfig, space: TuningSpace, probe: Probe, timed: bool) -> list[QuantConfig]:
    """The configuration with the repairs that make the error at the outputs clearly less, if there are any.

    Where they take time, which is measured if it counts, the configuration as it is comes first.
    """
    found = _corrected(_rescaled(config, space, probe, timed), space, probe)
    if found == config:
        return [config]
    before, after = probe.output_errors([config, found])
    if after >= CLEARLY_LESS_ERROR * before:
        return [config]
    return [config, found] if timed and _slower(config, found, probe) else [found]


def carry_over(repaired: QuantConfig, config: QuantConfig, space: TuningSpace) -> QuantConfig:
    """A configuration with the repairs of another one."""
    return config.replace({name: space[name].repaired(config[name], *pick.repairs) for name, pick in repaired.items()})


def _corrected(config: QuantConfig, space: TuningSpace, probe: Probe) -> QuantConfig:
    """With repairs that are done or not, on all ops at once: they take no time. One after the other, if it helps."""
    for name in dict.fromkeys(one for op in space.ops for one in op.repairs if not _is_rescaling(one)):
        changed = space.repair(config, name)
        if changed != config:
            before, after = probe.output_errors([config, changed])
            config = changed if after < CLEARLY_LESS_ERROR * before else config
    return config


def _rescaled(config: QuantConfig, space: TuningSpace, probe: Probe, timed: bool) -> QuantConfig:
    """With what is read rescaled: where the ops are clearly better off by themselves, or all of it in one way.

    Errors of ops by themselves do not tell what ops in a row gain together; all in one way may take more time.
    """
    found = _rescaled_by_tensor(config, space, probe)
    ways = dict.fromkeys(one for op in space.ops for one in op.repairs if _is_rescaling(one))
    whole = [made for way in ways if (made := _everywhere(config, space, way)) not in (config, found)]
    if not whole:
        return found
    before, *errors = probe.output_errors([found, *whole])
    after, best = min(zip(errors, whole, strict=True), key=lambda pair: pair[0])
    if after >= CLEARLY_LESS_ERROR * before or (timed and _slower(found, best, probe)):
        return found
    return best


def _everywhere(config: QuantConfig, space: TuningSpace, way: str) -> QuantConfig:
    """One way to rescale for all ops that offer it. Equalisation is for those whose weight has one scale."""
    ops = [op for op in space.ops if way != EQUALISATION or config[op.name].granularity == "per_tensor"]
    return _given(config, ops, way)


def _rescaled_by_tensor(config: QuantConfig, space: TuningSpace, probe: Probe) -> QuantConfig:
    """With repairs that have a strength, where the ops that read a tensor are clearly better off by themselves."""
    able = [op for op in space.ops if op.repaired(config[op.name], *_with_strength(op)[:1]) != config[op.name]]
    if not able:
        return config
    alone = space.float_config().replace({op.name: config[op.name] for op in able})
    ways = list(dict.fromkeys(one for op in able for one in _with_strength(op)))
    before = probe.local_error(alone)
    after = {way: probe.local_error(_given(alone, able, way)) for way in ways}
    readers: dict[str, list[Op]] = {}
    for op in able:
        readers.setdefault(op.reads, []).append(op)
    gains: dict[str, tuple[float, str]] = {}
    for tensor, ops in readers.items():
        way = min(ways, key=lambda way: _total(after[way], ops))
        if _total(after[way], ops) < WELL_WORTH * _total(before, ops):
            gains[tensor] = _total(before, ops) - _total(after[way], ops), way
    for tensor in _most(gains):
        config = _given(config, readers[tensor], gains[tensor][1])
    return config


def _most(gains: Mapping[str, tuple[float, str]]) -> list[str]:
    """The fewest that bring most of the gain."""
    enough, chosen = MOST_OF_IT * sum(gain for gain, _ in gains.values()), []
    for tensor in sorted(gains, key=lambda tensor: -gains[tensor][0]):
        if enough > 0:
            chosen.append(tensor)
            enough -= gains[tensor][0]
    return chosen


def _given(config: QuantConfig, ops: Iterable[Op], way: str) -> QuantConfig:
    return config.replace({op.name: op.repaired(config[op.name], way) for op in ops})


def _slower(one: QuantConfig, other: QuantConfig, probe: Probe) -> bool:
    """Whether the second takes clearly more time."""
    first, second = probe.speeds([one, other])
    return second > TIE * first


def _is_rescaling(spelled: str) -> bool:
    """Whether a repair divides what ops read: of several, one can be done."""
    return spelled == EQUALISATION or strength_of(spelled) is not None


def _with_strength(op: Op) -> list[str]:
    return [one for one in op.repairs if strength_of(one) is not None]


def _total(errors: Mapping[str, float], ops: Iterable[Op]) -> float:
    return sum(errors[op.name] for op in ops)
