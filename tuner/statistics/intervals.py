"""How sure a loss is: intervals from the differences of paired scores.

The scores of one sample under both models belong together; their differences vary far less than the scores do. The
interval is the usual one of their mean (of the ratio, for a relative loss), after two made-up samples are added: one
that lost and one that gained, as samples do that differ. Where scores are 0 or 1 that is Bonett and Price's interval.
Where only a few samples differ the plain one claims to know far too much, and this one errs on the other side.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

NORMAL = NormalDist()


class Interval(NamedTuple):
    """Between which losses the loss on all data of this kind lies; positive is worse."""

    low: float
    high: float


class _Estimate(NamedTuple):
    """A loss with its standard error."""

    loss: float
    error: float


def paired_interval(
    baseline: Any, scores: Any, level: float = 0.95, relative: bool = True, higher_is_better: bool = True
) -> Interval:
    """The interval of the loss: of `level` of all sets of samples it holds the loss on the whole of such data.

    Args:
        baseline: the fp32 model's score of each sample.
        scores: the other model's scores of the same samples.
        level: how often the interval must be right.
        relative: whether the loss is a fraction of the fp32 model's mean score.
        higher_is_better: False for scores that are errors.
    """
    estimate = _estimate(baseline, scores, relative, higher_is_better)
    reach = NORMAL.inv_cdf((1 + level) / 2) * estimate.error
    return Interval(estimate.loss - reach, estimate.loss + reach)


def confidence(
    baseline: Any, scores: Any, allowed: float, relative: bool = True, higher_is_better: bool = True
) -> float:
    """How sure it is that the loss on such data is at most `allowed`: the level of the interval that ends there."""
    estimate = _estimate(baseline, scores, relative, higher_is_better)
    if estimate.error == 0:
        return 1.0 if estimate.loss <= allowed else 0.0
    return NORMAL.cdf((allowed - estimate.loss) / estimate.error)


def corrected(level: float, k: int) -> float:
    """The level that each of `k` intervals needs so that all of them are right with `level` together.

    Bonferroni's: it holds however the intervals depend on each other, and those of trials do, for they share samples.
    """
    return 1 - (1 - level) / max(k, 1)


def _estimate(baseline: Any, scores: Any, relative: bool, higher_is_better: bool) -> _Estimate:
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
    # A ratio varies with its denominator, too: what is left of each difference after its share of the loss.
    rest = lost - loss / scale * (np.sign(before.mean()) * before - scale) if relative else lost
    squares = float(np.square(rest - loss).sum()) + (step - loss) ** 2 + (step + loss) ** 2
    return _Estimate(loss / scale, math.sqrt(squares) / count / scale)


def _step(lost: NDArray[np.float64]) -> float:
    """By how much the made-up samples differ: between the usual difference and the largest one, 0 if there is none.

    With the usual one intervals of skewed differences are too short, with the largest one others are too long
    (`benchmarks.coverage`); of scores of 0 and 1 all three are 1.
    """
    sizes = np.abs(lost[lost != 0])
    return math.sqrt(float(sizes.max()) * math.sqrt(float(np.square(sizes).mean()))) if sizes.size else 0.0


def _spread(scores: NDArray[np.float64]) -> float:
    """How far scores lie apart, or from 0 if they are all the same."""
    return float(scores.max() - scores.min()) or abs(float(scores.max()))
