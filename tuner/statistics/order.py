"""Are samples in random order? Early stop needs it, and a set sorted by class or difficulty is not."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


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
