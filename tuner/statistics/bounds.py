"""The bounds of a sample's score, which early stop must know to be right."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike


class Bounds(NamedTuple):
    """The lowest and the highest score that a sample can have.

    Only the better end must be true. A score beyond the worse end counts as if it lay there: that makes a trial look
    better than it is, and so never stops a good one.
    """

    low: float
    high: float

    @property
    def width(self) -> float:
        """The largest possible difference between the scores of two samples."""
        return self.high - self.low


def score_bounds(baseline: ArrayLike, higher_is_better: bool = True) -> Bounds | None:
    """Return the bounds that the fp32 model's own scores suggest; None if they suggest none, and must be passed.

    Scores within 0 and 1 (right or wrong, recall, IoU) and within -1 and 1 (cosines) end there. Scores within 0 and 100
    are percents or decibels. Errors of at least 0, where lower is better, end at 0; their other end is twice the
    greatest error of the fp32 model.
    """
    scores = np.asarray(baseline, dtype=float)
    least, greatest = float(scores.min()), float(scores.max())
    if least >= 0 and greatest <= 1:
        return Bounds(0.0, 1.0)
    if least >= -1 and greatest <= 1:
        return Bounds(-1.0, 1.0)
    if least >= 0 and not higher_is_better:
        return Bounds(0.0, 2 * greatest)
    if least >= 0 and greatest <= 100:
        return Bounds(0.0, 100.0)
    return None
