"""Choose the initial configuration without a single evaluation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from quaver.ops import CALIBRATIONS, DETAILS, QuantConfig
from quaver.probe import Probe
from quaver.space import TuningSpace, closest
from quaver.strategies.steps.alternatives import family, variants
from quaver.strategies.steps.pareto_front import Point, make_front
from quaver.strategies.steps.tuning import TUNING
from quaver.time_model import TimeModel


def best_calibration(config: QuantConfig, space: TuningSpace, probe: Probe) -> list[QuantConfig]:
    """Return the same ops quantized, with the calibration of least output error first, then comparable ones.

    Each method is tried for all ops, then for one op type at a time on top of the best.
    """
    names = config.quantized_ops
    whole = list(dict.fromkeys(_calibrated(config, names, space, method) for method in CALIBRATIONS))
    if len(whole) == 1:
        return whole
    errors = dict(zip(whole, probe.output_errors(whole), strict=True))
    ordered = sorted(whole, key=lambda config: errors[config])
    best = ordered[0] if errors[ordered[0]] < TUNING.clearly_less_error * errors[whole[0]] else whole[0]
    least = errors[best]
    for kind in space.kinds if len(space.kinds) > 1 else ():
        for changed in _recalibrated(space, best, kind):
            error = probe.output_error(changed)
            if error < TUNING.clearly_less_error * least:
                best, least = changed, error
    # The default comes second where it is not first: it clips nothing, and a few samples may hide what clipping costs.
    second = sorted(ordered, key=lambda config: config != whole[0])
    limit = TUNING.comparable_error_factor * least
    return [best, *(config for config in second if config != best and errors[config] < limit)]


def _recalibrated(space: TuningSpace, config: QuantConfig, kind: str) -> Iterator[QuantConfig]:
    names = [name for name in space.of_kind(kind) if config[name].quantized]
    for method in CALIBRATIONS:
        changed = _calibrated(config, names, space, method)
        if changed != config:
            yield changed


def _calibrated(config: QuantConfig, names: Iterable[str], space: TuningSpace, method: str) -> QuantConfig:
    """Return the configuration with some of its ops calibrated by a method, where they need calibration."""
    changes = {}
    for name in names:
        if config[name].calibrated:
            wanted = {**{field: getattr(config[name], field) for field in DETAILS}, "calibration": method}
            same_family = [choice for choice in space[name].choices if family(choice) == family(config[name])]
            changes[name] = closest(same_family, wanted)
    return config.replace(changes)


def measure_mixed_configs(config: QuantConfig, space: TuningSpace, probe: Probe) -> dict[QuantConfig, float]:
    """Return `config` and configs with fewer quantized ops, each with its measured time relative to fp32.

    A time model and the error of each op by itself, which a single pass gives, propose a few configs; they are measured
    interleaved. Those with most quantized ops come first.
    """
    model = probe.time_model(config)
    # An op that takes no time either way, such as a lookup table in 8 bits, stays quantized: it makes the file smaller.
    free = [name for name in space.able_to_fall_back(config) if model.fp32.get(name) or model.quantized.get(name)]
    if not free:
        return {config: 1.0}
    configs = list(_mixed_configs(config, free, space, model, probe.local_error()))
    return dict(zip(configs, probe.speeds(configs), strict=True))


def fastest(speeds: Mapping[QuantConfig, float], probe: Probe) -> list[QuantConfig]:
    """Return the config to begin with, then the fastest of all if that is another one.

    Of the configs that are as fast as the fastest, one with clearly less output error is preferred to others with more
    quantized ops: accuracy that costs no time is kept at once. Configs within the error bar of each other are always
    tied: noise must not choose between them.

    If even the fastest saves no time, giving ops up gains nothing. Then the one with most quantized ops comes first
    among those that are tied: it does not depend on which others were proposed. Where little is saved, more are tied.

    Args:
        speeds: measured times relative to fp32, of configs with most quantized ops first.
        probe: gives the error at the outputs.
    """
    quickest = min(speeds, key=lambda config: speeds[config])
    least = speeds[quickest]
    if least >= 1.0 - TUNING.error_bar:
        most_quantized = next(config for config in speeds if speeds[config] <= TUNING.tie_of_little_gain * least)
        return list(dict.fromkeys([most_quantized, quickest]))
    within_gain = least + TUNING.tie_share_of_gain * (1.0 - least)
    limit = min(TUNING.tie * least, max(within_gain, (1.0 + TUNING.error_bar) * least))
    if least >= TUNING.little_gain:
        limit = TUNING.tie_of_little_gain * least
    tied = [config for config in speeds if speeds[config] <= limit]
    best = tied[0]
    for config in tied[1:]:
        if probe.output_error(config) < TUNING.clearly_less_error * probe.output_error(best):
            best = config
    return list(dict.fromkeys([best, quickest]))


def best_variant(config: QuantConfig, space: TuningSpace, probe: Probe) -> QuantConfig:
    """Return the configuration in another family of choices (another mode, a repair), if that pays.

    It must be as fast with far less output error, or clearly faster with no more output error.
    """
    candidates = [config, *variants(config, space)]
    if len(candidates) == 1:
        return config
    speeds = dict(zip(candidates, probe.speeds(candidates), strict=True))
    errors = dict(zip(candidates, probe.output_errors(candidates), strict=True))
    best = config
    for candidate in candidates[1:]:
        is_as_fast = speeds[candidate] <= TUNING.tie * speeds[best]
        more_accurate = is_as_fast and errors[candidate] < TUNING.far_less_error * errors[best]
        faster = speeds[candidate] < TUNING.clearly_faster * speeds[best] and errors[candidate] <= errors[best]
        best = candidate if more_accurate or faster else best
    return best


def _mixed_configs(
    config: QuantConfig, free: list[str], space: TuningSpace, model: TimeModel, errors: Mapping[str, float]
) -> Iterator[QuantConfig]:
    """Yield configs with fewer quantized ops to be measured, those with most quantized ops first."""
    from_front = []
    for time_model in (model, model.with_costs(TUNING.cautious_cost_factor)):
        points = make_front(config, free, time_model, errors)
        from_front += _fastest_and_least_sensitive(
            [point for point in points if point.seconds <= TUNING.tie * points[0].seconds]
        )
    per_channel = [name for name in free if any(choice.granularity == "per_channel" for choice in space[name].choices)]
    by_gain = _by_gain(free, model)
    # Few ops, those that save most, where conversions use up the gain of the others; at last a single one.
    all_but_few = [by_gain[: -max(len(by_gain) // part, 1)] for part in (*TUNING.few_ops_parts, len(by_gain))]
    without_weights = [[name for name in free if name not in set(per_channel)]] if per_channel else []
    fallbacks = [config.fallback(*names) for names in (*without_weights, *all_but_few)]
    candidates = dict.fromkeys([config, *from_front, *fallbacks])
    place = {name: index for index, name in enumerate(config)}
    ordered = sorted(
        candidates, key=lambda item: (-item.quantized_count, [-place[name] for name in item.quantized_ops])
    )
    return (item for item in ordered if item.quantized_ops)


def _by_gain(free: list[str], model: TimeModel) -> list[str]:
    """Return the ops, those that save least first. Among those that save about as much, the last of the graph is last.

    Which of several equal ops was measured a little faster must not decide.
    """
    place = {name: index for index, name in enumerate(free)}
    whole = model.rest + sum(model.fp32.values())
    ordered: list[str] = []
    group: list[str] = []
    for name in sorted(free, key=lambda name: (-model.saved(name), place[name])):
        first = model.saved(group[0]) if group else 0.0
        if group and first - model.saved(name) > max(TUNING.equal_gain * abs(first), TUNING.least_gain * whole):
            ordered += sorted(group, key=lambda name: -place[name])
            group = []
        group.append(name)
    return (ordered + sorted(group, key=lambda name: -place[name]))[::-1]


def _fastest_and_least_sensitive(points: list[Point]) -> list[QuantConfig]:
    """Return the fastest config, and the first one whose sensitivity is close to the lowest of all."""
    if not points:
        return []
    limit = points[-1].sensitivity
    low_sensitivity = next(point for point in points if TUNING.clearly_less_error * point.sensitivity <= limit)
    return [points[0].config, low_sensitivity.config]
