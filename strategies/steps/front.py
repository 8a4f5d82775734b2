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
# So many trials along the front without a success, and it leads nowhere.
MOST = 8


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


def first_success(points: Sequence[Point], failed: Trial, allowed: float, probe: Probe) -> Search:
    """A point of the front that meets the criterion, after `failed` did not: few trials, and no more harm than needed.

    A loss is taken to grow with the error at the outputs, which costs no evaluation: after a trial with a loss of d and
    an error of e, the next is the fastest point whose error is a part of e * allowed / d.
    """
    best: Trial | None = None
    last, at = failed, -1
    for _ in range(MOST):
        error = probe.output_error(last.config)
        target = CAUTION * error * min(allowed / last.loss, 1.0) if last.loss and last.loss > 0 else CAUTION * error
        if at + 1 >= len(points):
            return best
        at = _first_below(points, at + 1, target, probe)
        trial: Trial = yield points[at].config
        if trial.met:
            return trial
        last = trial if trial.loss is not None else last
    return best


def _first_below(points: Sequence[Point], begin: int, target: float, probe: Probe) -> int:
    """The first point from `begin` on whose error at the outputs is below the target, by bisection; else the last."""
    low, high = begin, len(points) - 1
    while low < high:
        middle = (low + high) // 2
        if probe.output_error(points[middle].config) <= target:
            high = middle
        else:
            low = middle + 1
    return low


def faster(points: Sequence[Point], failed: Sequence[QuantConfig], met: Trial) -> Search:
    """Points of the front between one that fails and one that meets the criterion, by halving the gap."""
    place = {point.config: index for index, point in enumerate(points)}
    if met.config not in place:
        return met
    low = max((place[config] for config in failed if config in place and place[config] < place[met.config]), default=-1)
    high, best = place[met.config], met
    while high - low > 1:
        middle = (low + high) // 2
        trial: Trial = yield points[middle].config
        if trial.met:
            best, high = trial, middle
        else:
            low = middle
    return best
