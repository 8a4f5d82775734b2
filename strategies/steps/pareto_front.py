"""The front of predicted time and harm to the outputs, and the search for a first success along it.

For each price of harm the best mixture of reduced ops and fp32 is a minimum cut (see `TimeModel.fastest`). A rising
price gives mixtures that take longer and do less harm: on this line an accurate enough one is looked for.
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
from quaver.time_model import TimeModel
from quaver.trial import Trial

# Prices of harm that are looked at, between one that hardly counts and one that sends everything back.
PRICES = 64
# A point of the front does at least so much less harm than the one before.
LESS_HARM = 0.97
# So many points of the front, and as many prefixes of the ranking, are looked at.
POINTS = 12
# What a step gives up at least, as a part of all that reduced ops save; it doubles after each trial that fails.
STEP = 1 / 64
# After a trial with too large a loss this part of the error that should be enough is looked for.
CAUTION = 0.8
# A loss that has to come down to no less than the first part of itself is close: then so much of the gain is given up
# at first, and more with the root of the step.
CLOSE, SMALL = 1 / 3, 1 / 8
# So many trials are of something that is only about as good.
CHANCES = 2
# If there is nothing for that, so many times what the least takes that there is.
HARDLY_MORE = 1.25
# What is predicted to take less than the first part of the fp32 model's time may be no slower than it when it is
# measured; and no slower means not by more than the second, for that little may be noise.
MAY_BE_AS_FAST, AS_FAST = 1.25, 1.02
# So many trials without a success, and the error at the outputs is no guide.
MOST = 6
# Below this, errors and times do not matter.
TINY = 1e-12
# What an op has to save in fp32 before it falls back: from which part of its time to which, and in how many steps.
NOISE = (0.04, 0.4, 19)
# So much of the time of all ops counts in this as if it were the op's own.
MATTERS = 0.003


@dataclass(frozen=True, slots=True)
class Point:
    """A mixture on the front.

    Attributes:
        config: what it runs.
        seconds: predicted.
        harm: the sum of what its reduced ops do to the outputs, each by itself.
    """

    config: QuantConfig
    seconds: float
    sensitivity: float


def make_front(
    start: QuantConfig, free: Sequence[str], model: TimeModel, sensitivity: Mapping[str, float]
) -> list[Point]:
    """The mixtures of `start` and fp32 that no other beats in predicted time and harm, the fastest first."""
    doubt = _steady_doubt(start, free, model)
    found: dict[QuantConfig, Point] = {}
    for price in _prices(free, model, sensitivity):
        config = model.fastest(start, free, sensitivity, price, doubt)
        if not config.quantized_ops:
            break
        does = sum(sensitivity.get(name, 0.0) for name in config.quantized_ops)
        found.setdefault(config, Point(config, model.predict(config), does))
    points: list[Point] = []
    for point in sorted(found.values(), key=lambda point: (point.seconds, point.sensitivity)):
        if not points or point.sensitivity < LESS_HARM * points[-1].sensitivity:
            points.append(point)
    return points


def _steady_doubt(start: QuantConfig, free: Sequence[str], model: TimeModel) -> dict[str, float]:
    """Seconds that an op has to save in fp32 before it falls back: less may be noise.

    Of the parts of its time that this may be, the middle of the longest stretch along which the answer is the same:
    there a little noise changes nothing.
    """
    whole = model.rest + sum(model.fp32.values())
    choices = [
        {name: part * (model.fp32.get(name, 0.0) + MATTERS * whole) for name in free} for part in np.linspace(*NOISE)
    ]
    answers = [model.fastest(start, free, doubt=doubt) for doubt in choices]
    stretches = [list(group) for _, group in itertools.groupby(range(len(answers)), key=lambda index: answers[index])]
    longest = max(stretches, key=len)
    return choices[longest[len(longest) // 2]]


def _prices(free: Sequence[str], model: TimeModel, sensitivity: Mapping[str, float]) -> Iterator[float]:
    """Seconds that a unit of harm is worth, rising."""
    yield 0.0
    does = [sensitivity[name] for name in free if 0 < sensitivity.get(name, 0.0) < math.inf]
    longest = max((model.fp32.get(name, 0.0) for name in free), default=0.0)
    if does and longest > 0:
        yield from np.geomspace(1e-4 * longest / max(does), 1e2 * longest / min(does), PRICES).tolist()


def fallbacks(
    config: QuantConfig, sensitivity: Mapping[str, float], model: TimeModel, points: int = POINTS
) -> dict[QuantConfig, float]:
    """Points of the front, and prefixes of the ranking, each with its predicted time as a part of the fp32 model's."""
    ranking = ranked(sensitivity)
    line = _spread(make_front(config, ranking, model, sensitivity), points) + _prefixes(config, ranking, points)
    return {one: predicted(one, model) for one in (config, *line)}


def predicted(config: QuantConfig, model: TimeModel) -> float:
    """The time of a configuration as a part of the fp32 model's."""
    return model.predict(config) / (model.rest + sum(model.fp32.values()))


def first_success(
    failed: Trial, times: Mapping[QuantConfig, float], allowed: float, probe: Probe, width: int = 1
) -> Search:
    """A trial that meets the criterion, with as little time given up as the error at the outputs tells.

    Among the configurations of `times`, `failed` one of them, each with its predicted time. Tried is what takes most of
    the error away for the time it gives up, where error counts down to what should be enough: a loss is taken to grow
    with it. Where that was not enough, the next step is meant to be larger. With several workers the next steps are
    tried at once, as if those before them had failed.
    """
    ways = _Ways(dict(zip(times, probe.output_errors(list(times)), strict=True)), dict(times), probe)
    ways.measure(failed.config)
    tried, step = [failed], STEP
    for _ in range(math.ceil(MOST / width)):
        known = [trial for trial in tried if trial.loss is not None]
        if not known:
            return None
        last = min(known, key=_loss)
        about = ways.about_as_good(last, known, allowed)
        chosen: list[QuantConfig] = []
        for _ in range(width):
            others = [*(trial.config for trial in tried), *chosen]
            new = ways.next(last.config, allowed / _loss(last), step, about, others)
            chosen += [new] if new is not None else []
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
class _Ways:
    """Configurations to go on with.

    Attributes:
        errors: at the outputs.
        times: as parts of the fp32 model's; predicted, until they are measured.
        probe: measures.
    """

    errors: Mapping[QuantConfig, float]
    times: dict[QuantConfig, float]
    probe: Probe
    measured: set[QuantConfig] = field(default_factory=set)

    def measure(self, config: QuantConfig) -> None:
        """Go by what a configuration really takes."""
        self.times[config] = self.probe.speed(config)
        self.measured.add(config)

    def about_as_good(self, last: Trial, known: Sequence[Trial], allowed: float) -> float:
        """Below which error at the outputs a configuration may be good enough, if `last` nearly is.

        The loss of a few hundred samples is noisy: another configuration that is about as good may well be within the
        criterion, and the smaller the excess, the more likely. But not one that is about as bad as a trial that failed
        by far: the loss is taken to grow between the two as it did.
        """
        error, share = self.errors[last.config], min(allowed / _loss(last), 1.0)
        if share < CLOSE or len(known) > CHANCES:
            return LESS_HARM * error
        slope = 1.0
        for trial in known:
            more = self.errors[trial.config] / max(error, TINY)
            if allowed < CLOSE * _loss(trial):
                slope = max(slope, math.log(_loss(trial) / _loss(last)) / max(math.log(max(more, 1.0)), TINY))
        return float((1.0 + share) ** (1.0 / slope) * error)

    def next(
        self, last: QuantConfig, share: float, step: float, about: float, others: Sequence[QuantConfig]
    ) -> QuantConfig | None:
        """The most worthy one still when its time is measured, besides `others`; none that is slower than fp32."""
        for _ in self.times:
            left = [one for one in self.errors if one not in others and self.is_as_fast(one)]
            ahead = self.ahead(left, last, share, step, about)
            if not ahead or ahead[0] in self.measured:
                return ahead[0] if ahead else None
            self.measure(ahead[0])
        return None

    def is_as_fast(self, config: QuantConfig) -> bool:
        """Whether it is no slower than fp32, as far as that is known."""
        return self.times[config] < (AS_FAST if config in self.measured else MAY_BE_AS_FAST)

    def ahead(
        self, left: Sequence[QuantConfig], last: QuantConfig, share: float, step: float, about: float
    ) -> list[QuantConfig]:
        """Those with less error than `about`; the most worthy first. The loss of `last` must come down to a share.

        A small excess is no reason to give up much time at once.
        """
        gain = max(1.0 - min(self.times.values()), TINY)
        error = min(self.errors[last], 1 / TINY)
        enough = max(CAUTION * error * min(share, 1.0), TINY)
        usual = max(min(about, 1 / TINY), error)

        def given_up(config: QuantConfig) -> float:
            return max(self.times[config] - self.times[last], 0.0) / gain

        def worth(config: QuantConfig) -> float:
            return math.log(usual / max(self.errors[config], enough)) / (given_up(config) + step)

        better = [config for config in left if self.errors[config] < about]
        if share >= CLOSE and better:
            most = max(SMALL * math.sqrt(step / STEP), HARDLY_MORE * min(map(given_up, better)))
            better = [config for config in better if given_up(config) <= most]
        return sorted(better, key=worth, reverse=True)


def ranked(sensitivity: Mapping[str, float]) -> list[str]:
    """The ops that do most harm first."""
    return sorted(sensitivity, key=lambda name: -sensitivity[name])


def _spread(points: Sequence[Point], count: int) -> list[QuantConfig]:
    """Points all along the front."""
    chosen = np.unique(np.linspace(0, max(len(points) - 1, 0), count).round().astype(int)).tolist()
    return [points[index].config for index in chosen if points]


def _prefixes(config: QuantConfig, ranking: Sequence[str], count: int) -> list[QuantConfig]:
    """More and more of the ranking in fp32, but never all of it."""
    lengths = np.unique(np.geomspace(1, max(len(ranking) - 1, 1), count).round().astype(int))
    return [config.fallback(*ranking[:length]) for length in lengths if 0 < length < len(ranking)]
