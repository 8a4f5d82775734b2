"""When the samples seen so far rule out that a trial meets the criterion.

Two rules, and the first to say so ends the trial. *Curtailment*: the loss is too large even if every sample that is
left got the best score there is. That is certain. *Betting*: a gambler bets at fair odds that the loss is larger than
allowed; a trial that would meet the criterion on the full set lets him multiply his stake by 1/delta with probability
at most delta, whenever one looks (Ville's inequality). The bets are paired with the fp32 scores of the same samples,
and know that samples are drawn without replacement. They must come in random order; see `quaver.statistics.ordered`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quaver.errors import EvaluationError, SettingsError
from quaver.limit import NOISE
from quaver.statistics.bounds import Bounds, score_bounds

# Stakes of the gamblers whose wealth is averaged: nobody knows beforehand how large the loss is.
STAKES = np.array([0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0])
# The part of its wealth that a gambler risks at most.
AT_RISK = 0.9
# What sums over all samples may be off by, as a part of the largest score: far above float noise and what
# `Criterion.met` forgives, far below any difference that matters.
SLACK = 1000 * NOISE


class EarlyStop:
    """Follows the scores of one trial, and says when it will not meet the criterion.

    A trial that would meet it on the full set is stopped with probability at most `delta`, whatever the batches.

    Attributes:
        seen: how many samples were scored.
        certain: whether the loss is too large whatever the samples that are left bring.
        stopped: whether the trial is hopeless, surely or very likely. Stays true.
    """

    def __init__(
        self,
        baseline: Any,
        allowed_total: float,
        delta: float = 0.05,
        bounds: tuple[float, float] | None = None,
        higher_is_better: bool = True,
    ) -> None:
        """Prepare to follow a trial.

        Args:
            baseline: the fp32 model's score of each sample.
            allowed_total: the loss allowed, summed over all samples, in units of the score.
            delta: the probability with which a trial that meets the criterion may be stopped.
            bounds: the least and the greatest score of a sample; by default what `score_bounds` makes of the baseline.
            higher_is_better: False for scores that are errors.
        """
        self._baseline = np.asarray(baseline, dtype=float)
        if self._baseline.ndim != 1 or not self._baseline.size or not np.isfinite(self._baseline).all():
            raise SettingsError("early stop needs one finite fp32 score for each of at least one sample")
        if not 0 < delta < 1:
            raise SettingsError(f"`delta` must lie between 0 and 1, not {delta!r}")
        limits = score_bounds(self._baseline, higher_is_better) if bounds is None else Bounds(*map(float, bounds))
        if limits is None:
            raise SettingsError(
                "it is not known between which numbers a sample's score lies: give `bounds=(low, high)`"
            )
        if not limits.low < limits.high or not math.isfinite(limits.width):
            raise SettingsError(f"`bounds` must be two finite numbers, the lower first, not {tuple(limits)}")
        if self._baseline.min() < limits.low or self._baseline.max() > limits.high:
            raise SettingsError(
                f"`bounds` are {tuple(limits)}, but the fp32 model scores {self._baseline.min():.6g} to "
                f"{self._baseline.max():.6g}"
            )
        self._bounds = limits
        self._sign = 1.0 if higher_is_better else -1.0
        self._best = limits.high if higher_is_better else limits.low
        self._log_limit = -math.log(delta)
        # Everything below is a loss as a part of the width, which lies within -1 and 1.
        count, scale = self._baseline.size, max(abs(limits.low), abs(limits.high)) / limits.width
        self._allowed = allowed_total / limits.width + count * scale * SLACK
        self._target = (count + self._allowed) / 2  # N·b: what all x may sum up to
        # What the samples from each place on would add to the loss with the best score; nothing behind the last one.
        best = self._sign * (self._baseline - self._best) / limits.width
        self._best_rest = np.append(np.cumsum(best[::-1])[::-1], 0.0)
        self._lost = 0.0
        self._log_wealth = np.zeros(STAKES.size)
        self._trusted = True
        self.seen = 0
        self.certain = False
        self.stopped = False

    @property
    def bounds(self) -> Bounds:
        """Between which numbers scores are taken to lie."""
        return self._bounds

    @property
    def wealth(self) -> float:
        """What the gamblers made of a stake of 1 by now, on average."""
        return math.exp(min(_log_mean(self._log_wealth[:, None])[0], 700.0))

    def update(self, scores: Any) -> bool:
        """Take the scores of the next samples, in the order of the baseline; True if the trial will not meet it."""
        batch = np.atleast_1d(np.asarray(scores, dtype=float)).ravel()
        first, last = self.seen, self.seen + batch.size
        if last > self._baseline.size:
            raise EvaluationError(f"sample {self._baseline.size}: there is no such sample in the fp32 scores")
        if not np.isfinite(batch).all():
            raise EvaluationError(f"sample {first + int(np.argmin(np.isfinite(batch)))}: the score is not finite")
        if (self._sign * (batch - self._best) > SLACK * self._bounds.width).any():
            self._trusted = False  # better than the best score there is: the bounds are wrong, so nothing follows
        lost = self._sign * (self._baseline[first:last] - np.clip(batch, *self._bounds)) / self._bounds.width
        lost = np.clip(lost, -1.0, 1.0)
        before = self._lost + np.append(0.0, np.cumsum(lost))
        self._bet(lost, before[:-1])
        self._lost, self.seen = float(before[-1]), last
        if self._trusted and self._lost + self._best_rest[last] > self._allowed:
            self.certain = self.stopped = True
        return self.stopped

    def _bet(self, lost: NDArray[np.float64], before: NDArray[np.float64]) -> None:
        """Every gambler bets on each sample of the batch in turn."""
        if not lost.size:
            return
        places = np.arange(self.seen, self.seen + lost.size)
        drawn = (places + before) / 2  # the sum of all x that came before
        # The mean of the samples that are left, if the loss is just the one that is allowed. Below 0 it cannot be.
        mean = np.maximum((self._target - drawn) / (self._baseline.size - places), 0.0)
        stakes = np.minimum(STAKES[:, None], AT_RISK / np.maximum(mean, 1e-300))
        gains = np.cumsum(np.log1p(stakes * ((lost + 1) / 2 - mean)), axis=1) + self._log_wealth[:, None]
        self._log_wealth = gains[:, -1]
        # The mean is no larger than the largest, which is known at once.
        if self._trusted and gains.max() >= self._log_limit and _log_mean(gains).max() >= self._log_limit:
            self.stopped = True


def _log_mean(logs: NDArray[np.float64]) -> NDArray[np.float64]:
    """The logarithm of the mean over the first axis of what the logarithms are of."""
    top = logs.max(axis=0)
    means: NDArray[np.float64] = top + np.log(np.exp(logs - top).mean(axis=0))
    return means


def ordered(scores: Any) -> float:
    """How likely so few changes between good and bad samples are in random order: the p-value of a runs test.

    Wald and Wolfowitz's, exact, of one side: samples that alternate too well hurt nobody. Good are those above the
    median, or above the mean where the median splits nothing off, as with scores of 0 and 1.
    """
    values = np.asarray(scores, dtype=float).ravel()
    if not values.size:
        return 1.0
    good = values > np.median(values)
    if not good.any():
        good = values > values.mean()
    ups = int(good.sum())
    downs = good.size - ups
    if not ups or not downs:
        return 1.0
    runs = 1 + int(np.count_nonzero(good[1:] != good[:-1]))
    if runs == ups + downs:
        return 1.0
    # Of 2k runs there are k of each kind, of 2k + 1 there is one more of one kind or of the other.
    number = np.arange(2, runs + 1)
    half, odd = number // 2, number % 2 == 1
    logs = np.append(0.0, np.cumsum(np.log(np.arange(1, good.size + 1))))
    first = _choose(logs, ups - 1, half - 1) + _choose(logs, downs - 1, half - 1 + odd)
    second = _choose(logs, ups - 1, half - 1 + odd) + _choose(logs, downs - 1, half - 1)
    ways = np.logaddexp(first, second) - _choose(logs, good.size, np.array([ups]))
    return min(1.0, float(np.exp(ways).sum()))


def _choose(logs: NDArray[np.float64], count: int, taken: NDArray[np.int_]) -> NDArray[np.float64]:
    """Logarithms of the binomial coefficients; of none where more are taken than there are."""
    possible = (taken >= 0) & (taken <= count)
    safe = np.where(possible, taken, 0)
    return np.where(possible, logs[count] - logs[safe] - logs[count - safe], -np.inf)
