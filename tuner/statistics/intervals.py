"""Confidence intervals of a loss, from the differences of paired scores.

The scores of one sample under both models are paired: their differences vary far less than the scores do. The interval
is the usual one of their mean (of the ratio, for a relative loss), after two pseudo-samples are added: one loses
and one gains as much as the samples with a difference. For scores of 0 and 1 that is Bonett and Price's interval. Where
only a few samples differ the plain interval is far too short, and this one is rather too long.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

NORMAL = NormalDist()


class Interval(NamedTuple):
    """The range of the loss on all data of this kind; positive is worse."""

    low: float
    high: float


class _Estimate(NamedTuple):
    """A loss with its standard error."""

    loss: float
    error: float


def paired_interval(
    baseline: ArrayLike, scores: ArrayLike, level: float = 0.95, relative: bool = True, higher_is_better: bool = True
) -> Interval:
    """Return the confidence interval of the loss on all data of which the samples are drawn.

    Args:
        baseline: the fp32 model's score of each sample.
        scores: the other model's scores of the same samples.
        level: the probability that the interval holds the loss.
        relative: True if the loss is a fraction of the fp32 model's mean score.
        higher_is_better: False for scores that are errors.
    """
    estimate = _estimate(baseline, scores, relative, higher_is_better)
    reach = NORMAL.inv_cdf((1 + level) / 2) * estimate.error
    return Interval(estimate.loss - reach, estimate.loss + reach)


def confidence(
    baseline: ArrayLike, scores: ArrayLike, allowed: float, relative: bool = True, higher_is_better: bool = True
) -> float:
    """Return the confidence that the loss on such data is at most `allowed`: the level of the interval ending there."""
    estimate = _estimate(baseline, scores, relative, higher_is_better)
    if estimate.error == 0:
        return 1.0 if estimate.loss <= allowed else 0.0
    return NORMAL.cdf((allowed - estimate.loss) / estimate.error)


def corrected(level: float, k: int) -> float:
    """Return the level that each of `k` intervals needs so that all of them together hold with `level`.

    This is Bonferroni's correction: it holds however the intervals depend on each other. Those of trials do, because
    they share samples.
    """
    return 1 - (1 - level) / max(k, 1)


def _estimate(baseline: ArrayLike, scores: ArrayLike, relative: bool, higher_is_better: bool) -> _Estimate:
    before, after = np.asarray(baseline, dtype=float), np.asarray(scores, dtype=float)
    if before.ndim != 1 or before.shape != after.shape or not before.size:
        raise ValueError(f"paired scores are two lists of one length, not of shapes {before.shape} and {after.shape}")
    lost = before - after if higher_is_better else after - before
    scale = abs(float(before.mean())) if relative else 1.0
    if scale == 0:
        raise ValueError("a loss relative to a mean score of 0 is not defined")
    step = _step(lost) or _spread(before)
    count = lost.size + 2
    loss = float(lost.sum()) / count
    # A ratio varies with its denominator, too: the residual is each difference without its share of the loss.
    residual = lost - loss / scale * (np.sign(before.mean()) * before - scale) if relative else lost
    squares = float(np.square(residual - loss).sum()) + (step - loss) ** 2 + (step + loss) ** 2
    return _Estimate(loss / scale, math.sqrt(squares) / count / scale)


def _step(lost: NDArray[np.float64]) -> float:
    """Return the difference of the pseudo-samples: between the usual and the largest one, 0 if no samples differ.

    With the usual difference, intervals of skewed differences are too short; with the largest one, others are too long
    (benchmarks/coverage.py). For scores of 0 and 1 all three are 1.
    """
    sizes = np.abs(lost[lost != 0])
    return math.sqrt(float(sizes.max()) * math.sqrt(float(np.square(sizes).mean()))) if sizes.size else 0.0


def _spread(scores: NDArray[np.float64]) -> float:
    """Return the range of the scores, or their distance from 0 if they are all equal."""
    return float(scores.max() - scores.min()) or abs(float(scores.max()))
