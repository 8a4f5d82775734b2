"""Search on after a success that is not faster than fp32: among the configurations that are, before giving up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from quaver.ops import QuantConfig
from quaver.probe import Probe
from quaver.strategies.steps.alternatives import quantize_all
from quaver.strategies.steps.pareto_front import make_front
from quaver.strategies.steps.problem import Problem
from quaver.strategies.steps.search import Search
from quaver.strategies.steps.tuning import TUNING
from quaver.time_model import TimeModel
from quaver.trial import Trial


def is_faster(config: QuantConfig, probe: Probe) -> bool:
    """Return True if a configuration is faster than fp32 by more than the error bar."""
    return probe.speed(config) < 1.0 - TUNING.error_bar


def faster_than_fp32(met: Trial, problem: Problem) -> Search:
    """Find a trial that meets the criterion and is faster than fp32, after `met`, which is not; None if none is found.

    Candidates have fewer and larger parts in int8, so that few tensors are converted, or only the ops that save most
    time, by themselves or for their error. They are timed. Those that are faster than fp32 are tried, unless a trial
    with a part of their ops in int8 failed: first those that save much, then all, in the order of their error.
    """
    space, probe = problem.space, problem.probe
    whole = quantize_all(met.config, space)
    model, free = probe.time_model(whole), space.able_to_fall_back(whole)
    proposed = dict.fromkeys(_candidates(whole, free, model, probe.local_error()))
    usable = (config for config in proposed if config != met.config and config.quantized_ops)
    left = [config for config in usable if not _is_hopeless(config, problem.trials)]
    plausible = [config for config in left if model.relative(config) < TUNING.may_be_as_fast]
    candidates = sorted(plausible, key=model.relative)[: TUNING.max_gain_candidates]
    speeds = dict(zip(candidates, probe.speeds(candidates), strict=True)) if candidates else {}
    faster = [config for config in candidates if speeds[config] < 1.0 - TUNING.error_bar]
    errors = dict(zip(faster, probe.output_errors(faster), strict=True)) if faster else {}
    much = 1.0 - TUNING.worthwhile_gain * (1.0 - min(speeds.values(), default=1.0))
    for number in range(TUNING.max_gain_trials):
        faster = [config for config in faster if not _is_hopeless(config, problem.trials)]
        saving_much = [config for config in faster if speeds[config] < much]
        of_interest = saving_much if saving_much and number < TUNING.max_gain_trials // 2 else faster
        if not of_interest:
            return None
        config = min(of_interest, key=lambda config: errors[config])
        trial: Trial = yield config
        if trial.met and is_faster(config, probe):
            return trial
        faster.remove(config)
    return None


def _is_hopeless(config: QuantConfig, trials: Sequence[Trial]) -> bool:
    """Return True if a trial failed although it quantizes no other ops than a configuration does."""
    quantized = set(config.quantized_ops)
    return any(not trial.met and quantized.issuperset(trial.config.quantized_ops) for trial in trials)


def _candidates(
    whole: QuantConfig, free: Sequence[str], model: TimeModel, errors: Mapping[str, float]
) -> Iterator[QuantConfig]:
    """Yield mixes of `whole` and fp32 that may be faster than fp32."""
    for factor in TUNING.gain_cost_factors:
        points = make_front(whole, free, model.with_costs(factor), errors)
        yield from (point.config for point in points[:: max(len(points) // TUNING.front_points, 1)])
    saving = [name for name in free if name in model.fp32 and name in model.quantized and model.saved(name) > 0]
    worth = sorted(saving, key=lambda name: model.saved(name) / max(errors.get(name, 0.0), TUNING.tiny), reverse=True)
    for order in (worth, sorted(saving, key=model.saved, reverse=True)):
        count = 1
        while count <= len(order):
            chosen = set(order[:count])
            yield whole.fallback(*(name for name in free if name not in chosen))
            count *= 2
