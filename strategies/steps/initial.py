"""The initial configuration, chosen without a single evaluation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from quaver.ops import CALIBRATIONS, DETAILS, QuantConfig
from quaver.probe import Probe
from quaver.space import TuningSpace, closest
from quaver.strategies.steps.alternatives import family, variants
from quaver.strategies.steps.front import Point, make_front
from quaver.time_model import TimeModel

# A change has to be this much better to be worth making: smaller differences are noise of a few samples.
CLEARLY_LESS_ERROR = 0.9
CLEARLY_FASTER = 0.95
# And a change of how all ops run by so much.
FAR_LESS_ERROR = 0.7
# What is slower than the fastest by no more than this is as fast,
TIE = 1.02
# if that is no more than this part of the time that the fastest saves.
OF_THE_GAIN = 0.25
# Two measurements of one mixture differ by up to this part: each is measured until its halves agree to .5 %.
ERROR_BAR = 0.01
# Borders are taken to cost so many times what they do, to look for mixtures with few of them.
WARY = 4.0
# These parts of the ops are tried by themselves, those that save most.
FEW = (4, 16)
# A runner-up is worth an evaluation if its error is within this factor of the best.
COMPARABLE = 4.0


def best_calibration(config: QuantConfig, space: TuningSpace, probe: Probe) -> list[QuantConfig]:
    """The same ops reduced, with the calibration that disturbs the outputs least first, then comparable ones.

    Tries each method for all ops, then for one op type at a time on top of the best.
    """
    names = config.reduced_ops
    whole = list(dict.fromkeys(_calibrated(config, names, space, method) for method in CALIBRATIONS))
    if len(whole) == 1:
        return whole
    errors = dict(zip(whole, probe.output_errors(whole), strict=True))
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
        changed = _calibrated(config, names, space, method)
        if changed != config:
            yield changed


def _calibrated(config: QuantConfig, names: Iterable[str], space: TuningSpace, method: str) -> QuantConfig:
    """The configuration with some of its ops calibrated by a method; those that are not calibrated stay as they are."""
    changes = {}
    for name in names:
        if config[name].calibrated:
            wanted = {**{field: getattr(config[name], field) for field in DETAILS}, "calibration": method}
            same = [choice for choice in space[name].choices if family(choice) == family(config[name])]
            changes[name] = closest(same, wanted)
    return config.replace(changes)


def measured_mixtures(config: QuantConfig, space: TuningSpace, probe: Probe) -> dict[QuantConfig, float]:
    """The configuration, and some without ops that do not pay, each with its measured time as a part of fp32's.

    A time model and the error of each op by itself, which a single pass tells, propose a few; they are measured in
    turns. The most reduced ones come first.
    """
    model = probe.time_model(config)
    # What takes no time either way, as a table in 8 bits, stays so, for size.
    free = [name for name in space.able_to_fall_back(config) if model.fp32.get(name) or model.reduced.get(name)]
    if not free:
        return {config: 1.0}
    found = list(_mixtures(config, free, space, model, probe.local_error()))
    return dict(zip(found, probe.speeds(found), strict=True))


def fastest(speeds: Mapping[QuantConfig, float], probe: Probe) -> list[QuantConfig]:
    """Of mixtures with their times, the one to begin with.

    Of those that are as fast as the fastest, the one that disturbs the outputs clearly less than others with more
    reduced ops comes first: what costs no time is given up for accuracy at once. Then the fastest of all, if that is
    another one. Mixtures within the error bar of each other are always tied: noise must not choose between them.

    If even the fastest saves no time, giving ops up gains nothing. Then the one with most reduced ops comes first
    among those that are tied: it does not depend on which others were proposed.
    """
    quickest = min(speeds, key=lambda one: speeds[one])
    least = speeds[quickest]
    if least >= 1.0 - ERROR_BAR:
        most_reduced = next(one for one in speeds if speeds[one] <= TIE * least)
        return list(dict.fromkeys([most_reduced, quickest]))
    as_fast = min(TIE * least, max(least + OF_THE_GAIN * (1.0 - least), (1.0 + ERROR_BAR) * least))
    tied = [one for one in speeds if speeds[one] <= as_fast]
    best = tied[0]
    for one in tied[1:]:
        if probe.output_error(one) < CLEARLY_LESS_ERROR * probe.output_error(best):
            best = one
    return list(dict.fromkeys([best, quickest]))


def best_variant(config: QuantConfig, space: TuningSpace, probe: Probe) -> QuantConfig:
    """The same ops in another family of choices (another mode, a repair), if that is better and costs nothing.

    It is as fast and disturbs the outputs far less, or it is clearly faster and disturbs them no more.
    """
    found = [config, *variants(config, space)]
    if len(found) == 1:
        return config
    speeds = dict(zip(found, probe.speeds(found), strict=True))
    errors = dict(zip(found, probe.output_errors(found), strict=True))
    best = config
    for one in found[1:]:
        milder = speeds[one] <= TIE * speeds[best] and errors[one] < FAR_LESS_ERROR * errors[best]
        faster = speeds[one] < CLEARLY_FASTER * speeds[best] and errors[one] <= errors[best]
        best = one if milder or faster else best
    return best


def _mixtures(
    config: QuantConfig, free: list[str], space: TuningSpace, model: TimeModel, errors: Mapping[str, float]
) -> Iterator[QuantConfig]:
    """Configurations with fewer reduced ops, to be measured; the most reduced ones first."""
    cheap = []
    for wary in (model, model.with_costs(WARY)):  # an fp32 op among reduced ones may lose more than a conversion takes
        points = make_front(config, free, wary, errors)
        cheap += _ends([point for point in points if point.seconds <= TIE * points[0].seconds])
    heavy = [name for name in free if any(choice.granularity == "per_channel" for choice in space[name].choices)]
    ranked = sorted(free, key=model.saved)
    # Only the ops that save most: what is left when conversions eat up the gain of the others; at last a single one.
    few = [ranked[: -max(len(ranked) // part, 1)] for part in (*FEW, len(ranked))]
    light = [[name for name in free if name not in set(heavy)]] if heavy else []
    found = dict.fromkeys([config, *cheap, *(config.fallback(*names) for names in (*light, *few))])
    return (one for one in sorted(found, key=lambda one: -one.reduced_count) if one.reduced_ops)


def _ends(points: list[Point]) -> list[QuantConfig]:
    """The fastest, and the one from which on hardly any harm is left to be saved."""
    if not points:
        return []
    calm = next(point for point in points if CLEARLY_LESS_ERROR * point.harm <= points[-1].harm)
    return [points[0].config, calm.config]
