"""The front of predicted time and harm to the outputs, and a search along it.

For each price of harm the best mixture of reduced ops and fp32 is a minimum cut (see `TimeModel.fastest`). A rising
price gives mixtures that take longer and do less harm: along this line an accurate enough one is looked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from quaver.ops import QuantConfig
from quaver.probe import Probe
from quaver.strategies.steps.search import Search
from quaver.time_model import TimeModel
from quaver.trial import Trial

# Prices of harm that are looked at, between one that hardly counts and one that sends everything back.
PRICES = 96
# A point of the front does at least so much less harm than the one before.
LESS_HARM = 0.97
# After a trial with too large a loss, the next is meant to have this part of the error that would be small enough.
CAUTION = 0.8
# So many trials without a success, and the error at the outputs is no guide.
MOST = 6
# In so many steps the whole ranking falls back.
PREFIXES = 24


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
    harm: float


def make_front(
    start: QuantConfig,
    free: Sequence[str],
    model: TimeModel,
    harm: Mapping[str, float],
    doubt: Mapping[str, float] | None = None,
) -> list[Point]:
    """The mixtures of `start` and fp32 that no other beats in time and harm, the fastest first."""
    found: dict[QuantConfig, Point] = {}
    for price in _prices(free, model, harm):
        config = model.fastest(start, free, harm, price, doubt)
        if not config.reduced_ops:
            break
        found.setdefault(config, Point(config, model.predict(config), _harm(config, harm)))
    points: list[Point] = []
    for point in sorted(found.values(), key=lambda point: (point.seconds, point.harm)):
        if not points or point.harm < LESS_HARM * points[-1].harm:
            points.append(point)
    return points


def _prices(free: Sequence[str], model: TimeModel, harm: Mapping[str, float]) -> Iterator[float]:
    """Seconds that a unit of harm is worth, rising."""
    yield 0.0
    does = [harm[name] for name in free if 0 < harm.get(name, 0.0) < float("inf")]
    takes = [model.fp32.get(name, 0.0) for name in free]
    if does and max(takes, default=0.0) > 0:
        longest = max(takes)
        yield from np.geomspace(1e-4 * longest / max(does), 1e2 * longest / min(does), PRICES).tolist()


def _harm(config: QuantConfig, harm: Mapping[str, float]) -> float:
    return sum(harm.get(name, 0.0) for name in config.reduced_ops)


def first_success(
    points: Sequence[Point], ranking: Sequence[str], failed: Trial, allowed: float, probe: Probe
) -> Search:
    """A configuration that meets the criterion, after `failed` did not: few trials, and no more harm than needed.

    A loss is taken to grow with the error at the outputs, which costs no evaluation: after a trial with a loss of d and
    an error of e, the next has a part of e * allowed / d. Two are looked at, the fastest point of the front with so
    little error and the shortest prefix of the ranking, and the faster of both is tried.
    """
    last = failed
    for _ in range(MOST):
        error = probe.output_error(last.config)
        share = min(allowed / last.loss, 1.0) if last.loss is not None and last.loss > 0 else 1.0
        choices = [
            found
            for line in (_along(points), _falling(failed.config, ranking))
            if (found := _first_below(line, CAUTION * share * error, probe)) is not None and found != last.config
        ]
        if not choices:
            return None
        speeds = dict(zip(choices, probe.speeds(choices), strict=True))
        trial: Trial = yield min(choices, key=lambda config: (speeds[config], -len(config.reduced_ops)))
        if trial.met:
            return trial
        if trial.loss is None:
            return None
        last = trial
    return None


def _along(points: Sequence[Point]) -> list[QuantConfig]:
    return [point.config for point in points]


def _falling(config: QuantConfig, ranking: Sequence[str]) -> list[QuantConfig]:
    """More and more of the ranking in fp32, but never all of it."""
    lengths = sorted({round(len(ranking) * step / PREFIXES) for step in range(1, PREFIXES)} | {1, 2, 3})
    return [config.fallback(*ranking[:length]) for length in lengths if 0 < length < len(ranking)]


def _first_below(line: Sequence[QuantConfig], target: float, probe: Probe) -> QuantConfig | None:
    """The first configuration of a line with an error at the outputs below the target, by bisection; else the last."""
    low, high = 0, len(line) - 1
    while low < high:
        middle = (low + high) // 2
        if probe.output_error(line[middle]) <= target:
            high = middle
        else:
            low = middle + 1
    return line[low] if line else None
