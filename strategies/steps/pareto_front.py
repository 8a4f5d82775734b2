"""The latency/error Pareto front, and the search for a first success along it.

For each price of sensitivity the best mixed-precision config of quantized ops and fp32 is a minimum cut (see
`TimeModel.fastest`). A rising price gives configs that take longer and are more accurate; the search looks for one
that is accurate enough.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from quaver.ops import QuantConfig
from quaver.probe import Probe
from quaver.strategies.steps.search import Search, evaluate_batch
from quaver.strategies.steps.tuning import TUNING
from quaver.time_model import TimeModel
from quaver.trial import Trial


@dataclass(frozen=True, slots=True)
class Point:
    """A mixed-precision config on the front.

    Attributes:
        config: how the ops run.
        seconds: the predicted time.
        sensitivity: the sum of what its quantized ops do to the outputs, each by itself.
    """

    config: QuantConfig
    seconds: float
    sensitivity: float


def make_front(
    start: QuantConfig, free: Sequence[str], model: TimeModel, sensitivity: Mapping[str, float]
) -> list[Point]:
    """Return the mixes of `start` and fp32 that no other beats in predicted time and sensitivity, the fastest first."""
    doubt = _stable_doubt(start, free, model)
    by_config: dict[QuantConfig, Point] = {}
    for price in _prices(free, model, sensitivity):
        config = model.fastest(start, free, sensitivity, price, doubt)
        if not config.quantized_ops:
            break
        total = sum(sensitivity.get(name, 0.0) for name in config.quantized_ops)
        by_config.setdefault(config, Point(config, model.predict(config), total))
    points: list[Point] = []
    for point in sorted(by_config.values(), key=lambda point: (point.seconds, point.sensitivity)):
        if not points or point.sensitivity < TUNING.front_step * points[-1].sensitivity:
            points.append(point)
    return points


def _stable_doubt(start: QuantConfig, free: Sequence[str], model: TimeModel) -> dict[str, float]:
    """Return the seconds that each op must save in fp32 before it falls back: less may be noise.

    Of the parts of its time that this may be, the middle of the longest stretch with the same answer is taken: there a
    little noise changes nothing.
    """
    whole = model.rest + sum(model.fp32.values())
    own_share = TUNING.doubt_share_of_model * whole
    doubts = [
        {name: part * (model.fp32.get(name, 0.0) + own_share) for name in free}
        for part in np.linspace(*TUNING.doubt_range, TUNING.doubt_values)
    ]
    answers = [model.fastest(start, free, doubt=doubt) for doubt in doubts]
    stretches = [list(group) for _, group in itertools.groupby(range(len(answers)), key=lambda index: answers[index])]
    longest = max(stretches, key=len)
    return doubts[longest[len(longest) // 2]]


def _prices(free: Sequence[str], model: TimeModel, sensitivity: Mapping[str, float]) -> Iterator[float]:
    """Yield the seconds that a unit of sensitivity is worth: from next to nothing to enough to send every op back."""
    yield 0.0
    values = [sensitivity[name] for name in free if 0 < sensitivity.get(name, 0.0) < math.inf]
    longest = max((model.fp32.get(name, 0.0) for name in free), default=0.0)
    if values and longest > 0:
        yield from np.geomspace(1e-4 * longest / max(values), 1e2 * longest / min(values), TUNING.prices).tolist()


def fallbacks(
    config: QuantConfig, sensitivity: Mapping[str, float], model: TimeModel, points: int = TUNING.front_points
) -> dict[QuantConfig, float]:
    """Return points of the front and prefixes of the ranking, each with its predicted time relative to fp32."""
    ranking = ranked(sensitivity)
    line = _spread(make_front(config, ranking, model, sensitivity), points) + _prefixes(config, ranking, points)
    return {candidate: model.relative(candidate) for candidate in (config, *line)}


def first_success(
    failed: Trial, times: Mapping[QuantConfig, float], allowed: float, probe: Probe, width: int = 1
) -> Search:
    """Find a trial that meets the criterion and gives up little time, guided by the error at the outputs.

    The next trial removes the most error for the time that it gives up, where error counts down to what should be
    enough: the loss is assumed to grow with it. After a failure the next step is larger. With several workers the next
    steps are tried at once, as if those before them had failed.

    Args:
        failed: the trial that does not meet the criterion.
        times: the configurations to choose among, that of `failed` included, with their predicted times.
        allowed: the allowed loss.
        probe: gives output errors and measured times.
        width: the number of workers.
    """
    candidates = _Candidates(dict(zip(times, probe.output_errors(list(times)), strict=True)), dict(times), probe)
    candidates.measure(failed.config)
    tried, step = [failed], TUNING.first_step
    for _ in range(math.ceil(TUNING.max_front_trials / width)):
        scored = [trial for trial in tried if trial.loss is not None]
        if not scored:
            return None
        last = min(scored, key=_loss)
        error_limit = candidates.error_limit(last, scored, allowed)
        chosen: list[QuantConfig] = []
        for _ in range(width):
            excluded = [*(trial.config for trial in tried), *chosen]
            config = candidates.next(_Step(last.config, allowed / _loss(last), step, error_limit), excluded)
            chosen += [config] if config is not None else []
            step *= 2
        if not chosen:
            return None
        trials = yield from evaluate_batch(chosen, width)
        met = next((trial for trial in trials if trial.met), None)
        if met is not None:
            return met
        tried += trials
    return None


def _loss(trial: Trial) -> float:
    return math.inf if trial.loss is None else trial.loss


@dataclass(frozen=True, slots=True)
class _Step:
    """A step of the search along the front.

    Attributes:
        last: the best configuration so far.
        share: the part that its loss must come down to.
        size: the part of the gain that the step should give up.
        error_limit: candidates must have less error at the outputs.
    """

    last: QuantConfig
    share: float
    size: float
    error_limit: float


@dataclass(frozen=True, slots=True)
class _Candidates:
    """The configurations to choose the next trial from.

    Attributes:
        errors: at the outputs.
        times: relative to fp32; predicted, until they are measured.
        probe: measures times.
        measured: the configurations whose times are measured.
    """

    errors: Mapping[QuantConfig, float]
    times: dict[QuantConfig, float]
    probe: Probe
    measured: set[QuantConfig] = field(default_factory=set)

    def measure(self, config: QuantConfig) -> None:
        """Replace the predicted time of a configuration with the measured one."""
        self.times[config] = self.probe.speed(config)
        self.measured.add(config)

    def error_limit(self, last: Trial, scored: Sequence[Trial], allowed: float) -> float:
        """Return the error at the outputs below which a configuration may be good enough, if `last` nearly is.

        The loss of a few hundred samples is noisy: another configuration that is about as good may well meet the
        criterion, the more likely the smaller the excess. But not one that is about as bad as a trial that failed by
        far: between the two the loss is assumed to grow as it did.
        """
        error, share = self.errors[last.config], min(allowed / _loss(last), 1.0)
        if share < TUNING.near_miss or len(scored) > TUNING.near_miss_chances:
            return TUNING.front_step * error
        slope = 1.0
        for trial in scored:
            factor = self.errors[trial.config] / max(error, TUNING.tiny)
            if allowed < TUNING.near_miss * _loss(trial):
                growth = math.log(_loss(trial) / _loss(last)) / max(math.log(max(factor, 1.0)), TUNING.tiny)
                slope = max(slope, growth)
        return float((1.0 + share) ** (1.0 / slope) * error)

    def next(self, step: _Step, excluded: Sequence[QuantConfig]) -> QuantConfig | None:
        """Return the best candidate by its measured time; None if all are excluded, too bad or slower than fp32."""
        for _ in self.times:
            left = [config for config in self.errors if config not in excluded and self.is_as_fast(config)]
            ordered = self.ordered(left, step)
            if not ordered or ordered[0] in self.measured:
                return ordered[0] if ordered else None
            self.measure(ordered[0])
        return None

    def is_as_fast(self, config: QuantConfig) -> bool:
        """Return True if a configuration is no slower than fp32, as far as that is known."""
        return self.times[config] < (TUNING.as_fast if config in self.measured else TUNING.may_be_as_fast)

    def ordered(self, left: Sequence[QuantConfig], step: _Step) -> list[QuantConfig]:
        """Return the candidates within the error limit, the one that removes most error for its time first.

        After a near miss, those that give up much time at once are left out.
        """
        gain = max(1.0 - min(self.times.values()), TUNING.tiny)
        error = min(self.errors[step.last], 1 / TUNING.tiny)
        enough = max(TUNING.aim * error * min(step.share, 1.0), TUNING.tiny)
        usual = max(min(step.error_limit, 1 / TUNING.tiny), error)

        def cost(config: QuantConfig) -> float:
            return max(self.times[config] - self.times[step.last], 0.0) / gain

        def worth(config: QuantConfig) -> float:
            return math.log(usual / max(self.errors[config], enough)) / (cost(config) + step.size)

        better = [config for config in left if self.errors[config] < step.error_limit]
        if step.share >= TUNING.near_miss and better:
            usual_limit = TUNING.near_miss_max_cost * math.sqrt(step.size / TUNING.first_step)
            limit = max(usual_limit, TUNING.near_miss_cost_factor * min(map(cost, better)))
            better = [config for config in better if cost(config) <= limit]
        return sorted(better, key=worth, reverse=True)


def ranked(sensitivity: Mapping[str, float]) -> list[str]:
    """Return the ops, the most sensitive first."""
    return sorted(sensitivity, key=lambda name: -sensitivity[name])


def _spread(points: Sequence[Point], count: int) -> list[QuantConfig]:
    """Return configurations of points all along the front."""
    chosen = np.unique(np.linspace(0, max(len(points) - 1, 0), count).round().astype(int)).tolist()
    return [points[index].config for index in chosen if points]


def _prefixes(config: QuantConfig, ranking: Sequence[str], count: int) -> list[QuantConfig]:
    """Return configurations with more and more of the ranking in fp32, but never all of it."""
    lengths = np.unique(np.geomspace(1, max(len(ranking) - 1, 1), count).round().astype(int))
    return [config.fallback(*ranking[:length]) for length in lengths if 0 < length < len(ranking)]
