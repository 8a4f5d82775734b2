"""Stop a trial as soon as its samples so far rule out that it meets the criterion.

Two rules apply, and the first that rules the trial out ends it. *Curtailment*: the loss is too large even if every
sample that is left gets the best possible score. That is certain. *Betting*: a gambler bets at fair odds that the loss
is larger than allowed. A trial that would meet the criterion on the full set lets the gambler multiply the stake by
1/delta with probability at most delta, however often one checks (Ville's inequality). The bets are paired with the fp32
scores of the same samples, which are drawn without replacement. Samples must come in random order; see
`quaver.statistics.ordered`.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from quaver.errors import EvaluationError, SettingsError
from quaver.limit import NOISE
from quaver.statistics.bounds import Bounds, score_bounds

# Stakes of the gamblers whose wealth is averaged, because the size of the loss is not known beforehand: factors of two
# around 1, the best stake for a loss a little above the allowed one (benchmarks/early_stop.py).
STAKES = np.array([0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0])
# The largest part of its wealth that a gambler risks. Judgement: below 1, so that no gambler loses everything.
MAX_RISK = 0.9
# The error that sums over all samples may have, as a part of the largest score: far above float noise and the tolerance
# of `Criterion.met`, far below any difference that matters.
TOLERANCE = 1000 * NOISE


class EarlyStop:
    """Follows the scores of one trial, and tells when it will not meet the criterion.

    A trial that would meet it on the full set is stopped with probability at most `delta`, whatever the batches.

    Attributes:
        seen: the number of samples scored so far.
        certain: True if the loss is too large whatever the samples that are left score.
        stopped: True if the trial is ruled out, by either rule; it stays True.
    """

    def __init__(
        self,
        baseline: ArrayLike,
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
            bounds: the lowest and the highest score of a sample; by default those of `score_bounds` for the baseline.
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
                "the bounds of a sample's score cannot be derived from the fp32 scores: pass `bounds=(low, high)`"
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
        # From here on a loss is a part of the width of the bounds, between -1 and 1.
        count, scale = self._baseline.size, max(abs(limits.low), abs(limits.high)) / limits.width
        self._allowed = allowed_total / limits.width + count * scale * TOLERANCE
        self._target = (count + self._allowed) / 2  # N·b: the largest sum of all x that is allowed
        # The loss that the samples from each position on would add with the best score; 0 behind the last one.
        best = self._sign * (self._baseline - self._best) / limits.width
        self._best_remaining = np.append(np.cumsum(best[::-1])[::-1], 0.0)
        self._lost = 0.0
        self._log_wealth = np.zeros(STAKES.size)
        self._trusted = True
        self.seen = 0
        self.certain = False
        self.stopped = False

    @property
    def bounds(self) -> Bounds:
        """The bounds that scores are assumed to have."""
        return self._bounds

    @property
    def wealth(self) -> float:
        """The average wealth of the gamblers, each of whom started with 1."""
        return math.exp(min(_log_mean(self._log_wealth[:, None])[0], 700.0))

    def update(self, scores: ArrayLike) -> bool:
        """Take the scores of the next samples, in the order of the baseline. Return True if the trial is ruled out."""
        batch = np.atleast_1d(np.asarray(scores, dtype=float)).ravel()
        first, last = self.seen, self.seen + batch.size
        if last > self._baseline.size:
            raise EvaluationError(f"sample {self._baseline.size}: there is no such sample in the fp32 scores")
        if not np.isfinite(batch).all():
            raise EvaluationError(f"sample {first + int(np.argmin(np.isfinite(batch)))}: the score is not finite")
        if (self._sign * (batch - self._best) > TOLERANCE * self._bounds.width).any():
            self._trusted = False  # better than the best possible score: the bounds are wrong, so nothing follows
        lost = self._sign * (self._baseline[first:last] - np.clip(batch, *self._bounds)) / self._bounds.width
        lost = np.clip(lost, -1.0, 1.0)
        before = self._lost + np.append(0.0, np.cumsum(lost))
        self._bet(lost, before[:-1])
        self._lost, self.seen = float(before[-1]), last
        if self._trusted and self._lost + self._best_remaining[last] > self._allowed:
            self.certain = self.stopped = True
        return self.stopped

    def _bet(self, lost: NDArray[np.float64], before: NDArray[np.float64]) -> None:
        """Let every gambler bet on each sample of the batch, one after the other."""
        if not lost.size:
            return
        places = np.arange(self.seen, self.seen + lost.size)
        drawn = (places + before) / 2  # the sum of all x before
        # The mean of the samples that are left, if the loss is exactly the allowed one. It cannot be below 0.
        mean = np.maximum((self._target - drawn) / (self._baseline.size - places), 0.0)
        stakes = np.minimum(STAKES[:, None], MAX_RISK / np.maximum(mean, 1e-300))
        gains = np.cumsum(np.log1p(stakes * ((lost + 1) / 2 - mean)), axis=1) + self._log_wealth[:, None]
        self._log_wealth = gains[:, -1]
        # The mean is at most the maximum, which is computed at once.
        if self._trusted and gains.max() >= self._log_limit and _log_mean(gains).max() >= self._log_limit:
            self.stopped = True


def _log_mean(logs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the logarithm of the mean over the first axis of the numbers with these logarithms."""
    top = logs.max(axis=0)
    means: NDArray[np.float64] = top + np.log(np.exp(logs - top).mean(axis=0))
    return means


def ordered(scores: ArrayLike) -> float:
    """Return the p-value of a runs test: the probability of so few changes between good and bad in random order.

    It is Wald and Wolfowitz's test, exact and one-sided: samples may alternate too regularly. Good samples
    are those above the median, or above the mean where no sample is above the median, as with scores of 0 and 1.
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
    # 2k runs are k of each kind; 2k + 1 runs are one more of one kind or of the other.
    number = np.arange(2, runs + 1)
    half, odd = number // 2, number % 2 == 1
    logs = np.append(0.0, np.cumsum(np.log(np.arange(1, good.size + 1))))
    first = _choose(logs, ups - 1, half - 1) + _choose(logs, downs - 1, half - 1 + odd)
    second = _choose(logs, ups - 1, half - 1 + odd) + _choose(logs, downs - 1, half - 1)
    log_probabilities = np.logaddexp(first, second) - _choose(logs, good.size, np.array([ups]))
    return min(1.0, float(np.exp(log_probabilities).sum()))


def _choose(logs: NDArray[np.float64], count: int, chosen: NDArray[np.int_]) -> NDArray[np.float64]:
    """Return the logarithms of binomial coefficients; minus infinity where more are chosen than there are."""
    possible = (chosen >= 0) & (chosen <= count)
    safe = np.where(possible, chosen, 0)
    return np.where(possible, logs[count] - logs[safe] - logs[count - safe], -np.inf)
