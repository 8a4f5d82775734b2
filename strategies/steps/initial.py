"""The initial configuration, chosen without a single evaluation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from quaver.ops import CALIBRATIONS, DETAILS, QuantConfig
from quaver.probe import Probe
from quaver.space import TuningSpace, closest
from quaver.time_model import TimeModel

# A change has to be this much better to be worth making: smaller differences are noise of a few samples.
CLEARLY_LESS_ERROR = 0.9
CLEARLY_FASTER = 0.95
# By how much the time of an op may be off, and what part of the whole does not matter.
NOISE, MATTERS = 0.1, 0.004
# A runner-up is worth an evaluation if its error is within this factor of the best.
COMPARABLE = 4.0


def best_calibration(config: QuantConfig, space: TuningSpace, probe: Probe) -> list[QuantConfig]:
    """The same ops reduced, with the calibration that disturbs the outputs least first, then comparable ones.

    Tries each method for all ops, then for one op type at a time on top of the best.
    """
    fp32 = config.fp32_ops
    whole = list(dict.fromkeys(space.all_int8(calibration=method).fallback(*fp32) for method in CALIBRATIONS))
    if len(whole) == 1:
        return whole
    errors = {config: probe.output_error(config) for config in whole}
    ordered = sorted(whole, key=lambda config: errors[config])
    best = ordered[0] if errors[ordered[0]] < CLEARLY_LESS_ERROR * errors[whole[0]] else whole[0]
    least = errors[best]
    for kind in space.kinds if len(space.kinds) > 1 else ():
        for changed in _recalibrated(space, best, kind):
            error = probe.output_error(changed)
            if error < CLEARLY_LESS_ERROR * least:
                best, least = changed, error
    # The default comes second where it is not first: it clips nothing, and what clipping costs a few samples may hide.
    second = sorted(ordered, key=lambda config: config != whole[0])
    return [best, *(config for config in second if config != best and errors[config] < COMPARABLE * least)]


def _recalibrated(space: TuningSpace, config: QuantConfig, kind: str) -> Iterator[QuantConfig]:
    names = [name for name in space.of_kind(kind) if config[name].reduced]
    for method in CALIBRATIONS:
        changes = {}
        for name in names:
            wanted = {**{field: getattr(config[name], field) for field in DETAILS}, "calibration": method}
            changes[name] = closest(space[name].choices, wanted)
        changed = config.replace(changes)
        if changed != config:
            yield changed


def fastest(config: QuantConfig, space: TuningSpace, probe: Probe) -> QuantConfig:
    """The configuration without the ops that do not pay, if it is measurably faster as a whole.

    A time model tells which to leave out; whether that is right is measured on whole models. A tie goes to the one with
    more reduced ops. Where none is clearly faster than fp32, they are worth nothing, and the fastest is taken.
    """
    free = space.able_to_fall_back(config)
    if not free:
        return config
    model = probe.time_model(config)
    sure = model.fastest(config, free, doubt=doubts(model, free))
    found = [one for one in dict.fromkeys((config, sure, model.fastest(config, free))) if one.reduced_ops]
    found.sort(key=lambda one: -len(one.reduced_ops))
    speeds = dict(zip(found, probe.speeds(found), strict=True))
    best = found[0]
    for candidate in found[1:]:
        if speeds[candidate] < CLEARLY_FASTER * speeds[best]:
            best = candidate
    return best if speeds[best] < CLEARLY_FASTER else min(speeds, key=lambda known: speeds[known])


def doubts(model: TimeModel, names: Sequence[str]) -> dict[str, float]:
    """What each op must save in fp32 before it falls back: less than that may be noise, and does not matter."""
    floor = MATTERS * (model.rest + sum(model.fp32.values()))
    return {name: max(NOISE * model.fp32.get(name, 0.0), floor) for name in names}
