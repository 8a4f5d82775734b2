"""Choose repairs that bring the outputs nearer to the float model's, without labels, before any op falls back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from quaver.ops import Op, QuantConfig
from quaver.probe import Probe
from quaver.repairs import strength_of
from quaver.space import TuningSpace
from quaver.strategies.steps.tuning import TUNING

# The repair that brings weights of consecutive ops to similar sizes.
EQUALISATION = "equalisation"


def best_repairs(config: QuantConfig, space: TuningSpace, probe: Probe, timed: bool) -> list[QuantConfig]:
    """Return the configuration with the repairs that make the output error clearly less, if there are any.

    Where the repairs take time, which is measured if `timed`, the configuration without them comes first.
    """
    repaired = _with_corrections(_with_rescaling(config, space, probe, timed), space, probe)
    if repaired == config:
        return [config]
    before, after = probe.output_errors([config, repaired])
    if after >= TUNING.clearly_less_error * before:
        return [config]
    return [config, repaired] if timed and _is_slower(config, repaired, probe) else [repaired]


def carry_over(repaired: QuantConfig, config: QuantConfig, space: TuningSpace) -> QuantConfig:
    """Return a configuration with the repairs of another one."""
    return config.replace({name: space[name].repaired(config[name], *pick.repairs) for name, pick in repaired.items()})


def _with_corrections(config: QuantConfig, space: TuningSpace, probe: Probe) -> QuantConfig:
    """Add repairs that take no time, such as bias correction: one after the other, to all ops, if it helps."""
    for name in dict.fromkeys(repair for op in space.ops for repair in op.repairs if not _is_rescaling(repair)):
        changed = space.repair(config, name)
        if changed != config:
            before, after = probe.output_errors([config, changed])
            config = changed if after < TUNING.clearly_less_error * before else config
    return config


def _with_rescaling(config: QuantConfig, space: TuningSpace, probe: Probe, timed: bool) -> QuantConfig:
    """Rescale what ops read: tensor by tensor where the ops are clearly better off, or all of it by one repair.

    Errors of ops by themselves do not show what consecutive ops gain together; one repair for all may take more time.
    """
    by_tensor = _rescaled_by_tensor(config, space, probe)
    repairs = dict.fromkeys(repair for op in space.ops for repair in op.repairs if _is_rescaling(repair))
    everywhere = [
        changed
        for repair in repairs
        if (changed := _repaired_everywhere(config, space, repair)) not in (config, by_tensor)
    ]
    if not everywhere:
        return by_tensor
    before, *errors = probe.output_errors([by_tensor, *everywhere])
    after, best = min(zip(errors, everywhere, strict=True), key=lambda pair: pair[0])
    if after >= TUNING.clearly_less_error * before or (timed and _is_slower(by_tensor, best, probe)):
        return by_tensor
    return best


def _repaired_everywhere(config: QuantConfig, space: TuningSpace, repair: str) -> QuantConfig:
    """Apply one repair to all ops that offer it. Equalisation is for ops whose weight has one scale."""
    ops = [op for op in space.ops if repair != EQUALISATION or config[op.name].granularity == "per_tensor"]
    return _repaired(config, ops, repair)


def _rescaled_by_tensor(config: QuantConfig, space: TuningSpace, probe: Probe) -> QuantConfig:
    """Apply repairs that have a strength, where the ops that read a tensor are clearly better off by themselves."""
    able = [op for op in space.ops if op.repaired(config[op.name], *_with_strength(op)[:1]) != config[op.name]]
    if not able:
        return config
    alone = space.float_config().replace({op.name: config[op.name] for op in able})
    repairs = list(dict.fromkeys(repair for op in able for repair in _with_strength(op)))
    before = probe.local_error(alone)
    after = {repair: probe.local_error(_repaired(alone, able, repair)) for repair in repairs}
    readers: dict[str, list[Op]] = {}
    for op in able:
        readers.setdefault(op.reads, []).append(op)
    gains: dict[str, tuple[float, str]] = {}
    for tensor, ops in readers.items():
        repair = min(repairs, key=lambda repair: _total(after[repair], ops))
        if _total(after[repair], ops) < TUNING.repair_error * _total(before, ops):
            gains[tensor] = _total(before, ops) - _total(after[repair], ops), repair
    for tensor in _most_of_gain(gains):
        config = _repaired(config, readers[tensor], gains[tensor][1])
    return config


def _most_of_gain(gains: Mapping[str, tuple[float, str]]) -> list[str]:
    """Return the fewest tensors whose repairs bring most of the gain."""
    missing, chosen = TUNING.repair_share * sum(gain for gain, _ in gains.values()), []
    for tensor in sorted(gains, key=lambda tensor: -gains[tensor][0]):
        if missing > 0:
            chosen.append(tensor)
            missing -= gains[tensor][0]
    return chosen


def _repaired(config: QuantConfig, ops: Iterable[Op], repair: str) -> QuantConfig:
    return config.replace({op.name: op.repaired(config[op.name], repair) for op in ops})


def _is_slower(before: QuantConfig, after: QuantConfig, probe: Probe) -> bool:
    """Return True if the second configuration takes clearly more time."""
    first, second = probe.speeds([before, after])
    return second > TUNING.clear_tie * first


def _is_rescaling(repair: str) -> bool:
    """Return True if a repair divides what ops read: of several, an op can have one."""
    return repair == EQUALISATION or strength_of(repair) is not None


def _with_strength(op: Op) -> list[str]:
    return [repair for repair in op.repairs if strength_of(repair) is not None]


def _total(errors: Mapping[str, float], ops: Iterable[Op]) -> float:
    return sum(errors[op.name] for op in ops)
