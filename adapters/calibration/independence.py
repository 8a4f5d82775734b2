"""Tell whether a model computes the same for samples that are joined in one batch as for each alone.

Ranges are collected from joined samples, because that is faster. Not every model allows it: the first axis of an LSTM
is time, a Gather takes the first sample of any batch, a mean runs over all samples. The extremes of a few samples do
not always show this. A sum does: each value counts, whichever sample it belongs to and wherever it stands.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# Relative difference between the values of samples alone and joined. Rounding makes about 1e-6 of it, and a model that
# mixes samples far more than this. Judgement.
TOLERANCE = 1e-3
Numbers = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RunSummary:
    """Figures of each tensor of one run.

    Attributes:
        sizes: the number of values.
        lows: the smallest value.
        highs: the largest value.
        sums: the sum of all values.
        squares: the sum of all squares.
    """

    sizes: Numbers
    lows: Numbers
    highs: Numbers
    sums: Numbers
    squares: Numbers

    def is_of(self, samples: Sequence[RunSummary]) -> bool:
        """Return True if this run has exactly the values that the samples have alone.

        A tensor that does not depend on the batch has the same values in each run. NaN and infinity are reported later.
        """
        joined = RunSummary(
            np.sum([sample.sizes for sample in samples], 0),
            np.min([sample.lows for sample in samples], 0),
            np.max([sample.highs for sample in samples], 0),
            np.sum([sample.sums for sample in samples], 0),
            np.sum([sample.squares for sample in samples], 0),
        )
        is_shared = np.all([self._is_near(sample) for sample in samples], 0)
        return bool(np.all(self._is_near(joined) | is_shared))

    def _is_near(self, other: RunSummary) -> NDArray[np.bool_]:
        """Return for which tensors two summaries are equal up to rounding."""
        magnitudes = np.maximum(np.abs(other.lows), np.abs(other.highs))
        pairs = (
            (self.lows, other.lows, magnitudes),
            (self.highs, other.highs, magnitudes),
            (self.sums, other.sums, np.sqrt(other.sizes * other.squares)),
            (self.squares, other.squares, other.squares),
        )
        with np.errstate(invalid="ignore"):
            near = [(np.abs(mine - its) <= TOLERANCE * scale) | ~np.isfinite(its) for mine, its, scale in pairs]
        return np.asarray((self.sizes == other.sizes) & np.all(near, 0))


def summarize(values: Iterable[NDArray[np.float32]]) -> RunSummary:
    """Return the summary of a run that computed these tensors."""
    figures = np.array([_figures(array) for array in values], np.float64).reshape(-1, 5)
    return RunSummary(*figures.T)


def _figures(array: NDArray[np.float32]) -> tuple[float, float, float, float, float]:
    if not array.size:
        return 0.0, 0.0, 0.0, 0.0, 0.0
    flat = array.reshape(-1)
    total, squares = float(flat.sum(dtype=np.float64)), float(np.einsum("i,i->", flat, flat, dtype=np.float64))
    return float(array.size), float(array.min()), float(array.max()), total, squares
