"""The initial configuration, chosen without a single evaluation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from quaver.ops import CALIBRATIONS, DETAILS, QuantConfig
from quaver.probe import OpTime, Probe
from quaver.space import TuningSpace, closest

# A change has to be this much better to be worth making: smaller differences are noise of a few samples.
CLEARLY_LESS_ERROR = 0.9
CLEARLY_FASTER = 0.95
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

    Times of single ops tell which to leave out; whether that is right is measured on whole models, because a float
    op between two reduced ones costs a conversion on either side. Where even that is not clearly faster than fp32,
    reduced ops are worth nothing, and the fastest of all that were measured is taken.
    """
    times = probe.latency()
    free = space.able_to_fall_back(config)
    slower = [name for name in free if times[name].saved <= 0]
    best, speeds = config, {config: probe.speed(config)}
    for candidate in _leaner(config, free, slower, times, space):
        speeds[candidate] = probe.speed(candidate)
        if speeds[candidate] < CLEARLY_FASTER * speeds[best]:
            best = candidate
    return best if speeds[best] < CLEARLY_FASTER else min(speeds, key=lambda known: speeds[known])


def _leaner(
    config: QuantConfig, free: list[str], slower: list[str], times: Mapping[str, OpTime], space: TuningSpace
) -> Iterator[QuantConfig]:
    """Configurations with fewer reduced ops, to be tried for speed."""
    seen = {config}
    by_kind = {kind: [name for name in free if space[name].kind == kind] for kind in space.kinds}
    losing = [kind for kind, names in by_kind.items() if sum(times[name].saved for name in names) <= 0]
    groups = [slower, [name for kind in losing for name in by_kind[kind]], *(by_kind[kind] for kind in losing)]
    # Only the ops that save most: what is left when conversions eat up the gain of the others.
    ranked = sorted(free, key=lambda name: times[name].saved)
    # Half of them, a quarter and so on, to a single one: some models are faster in fp32 nearly everywhere.
    groups += [ranked[: -(len(ranked) >> step)] for step in range(1, len(ranked).bit_length())]
    for group in groups:
        candidate = config.fallback(*group)
        if candidate.reduced_ops and candidate not in seen:
            seen.add(candidate)
            yield candidate
