"""Histograms whose range grows with the data, in constant memory."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from quaver.diagnosis.statistics.cells import Doubles
from quaver.types import Array

# Judgement: bins of an activation's histogram; a figure is about this many pixels high.
BINS = 256
# Judgement: values of a batch that are counted, spread evenly over it; more cost time and change no figure.
MAX_COUNTED = 4096

Counts = NDArray[np.int64]


class LogHistogram:
    """Counts of sizes in sixteenths of an octave, which give medians of a stream to within 4 %."""

    STEPS, OCTAVES = 16, 300

    def __init__(self) -> None:
        self._counts: Counts = np.zeros(self.STEPS * self.OCTAVES, np.int64)

    def add(self, sizes: Doubles) -> None:
        """Count sizes, none of them NaN."""
        np.add.at(self._counts, self._places(sizes), 1)

    def median(self) -> float:
        """Return the median size; NaN before the first value."""
        total = int(self._counts.sum())
        if not total:
            return math.nan
        bin_index = int(np.searchsorted(np.cumsum(self._counts), (total + 1) // 2))
        return float(2.0 ** ((bin_index + 0.5) / self.STEPS - self.OCTAVES / 2)) if bin_index else 0.0

    def beyond(self, limit: float) -> int:
        """Return how many sizes are larger."""
        return int(self._counts[int(self._places(np.array([limit]))[0]) + 1 :].sum())

    def _places(self, sizes: Doubles) -> NDArray[np.intp]:
        with np.errstate(divide="ignore"):
            octaves = np.log2(sizes) + self.OCTAVES / 2
        return np.minimum(np.maximum(octaves * self.STEPS, 0), len(self._counts) - 1).astype(np.intp)


class Histogram:
    """Equal bins over all values so far. A value outside doubles the width of the bins as often as needed."""

    def __init__(self, bins: int = BINS) -> None:
        self.counts: Counts = np.zeros(bins, np.int64)
        self._low = self._width = math.nan

    @property
    def edges(self) -> Doubles:
        """The borders of the bins; NaN before the first value."""
        return np.asarray(self._low + self._width * np.arange(len(self.counts) + 1))

    def add(self, values: Array, low: float, high: float) -> None:
        """Count values between `low` and `high`, their extremes. NaN and infinity are left out."""
        flat = _thinned(values)
        if not (math.isfinite(low) and math.isfinite(high)):
            flat = flat[np.isfinite(flat)]
            if not flat.size:
                return
            low, high = float(flat.min()), float(flat.max())
        if flat.size:
            self._reach(low, high)
            places = ((flat.astype(np.float64) - self._low) / self._width).astype(np.intp)
            self.counts += np.bincount(np.minimum(places, len(self.counts) - 1), minlength=len(self.counts))

    def _reach(self, low: float, high: float) -> None:
        bins = len(self.counts)
        if math.isnan(self._low):
            width = (high - low) / (bins - 1) or max(abs(low), 1.0) / bins
            self._low, self._width = low, width
        while high >= self._low + self._width * bins:
            self.counts = np.concatenate([_paired(self.counts), np.zeros(bins // 2, np.int64)])
            self._width *= 2
        while low < self._low:
            self.counts = np.concatenate([np.zeros(bins // 2, np.int64), _paired(self.counts)])
            self._low -= self._width * bins
            self._width *= 2


def _paired(counts: Counts) -> Counts:
    return np.asarray(counts.reshape(-1, 2).sum(axis=1))


def _thinned(values: Array) -> Array:
    """Return at most about `MAX_COUNTED` values, at a step that visits all channels alike."""
    flat = values.reshape(-1)
    step = -(-flat.size // MAX_COUNTED)
    while step > 1 and math.gcd(step, flat.size) > 1:
        step += 1
    return flat[:: max(step, 1)]


def channel_counts(weight: Array, axis: int, bins: int) -> tuple[Counts, Doubles]:
    """Return a histogram of each channel (channels x bins) and the borders that all share."""
    rows = np.moveaxis(weight, axis, 0).reshape(weight.shape[axis], -1).astype(np.float64)
    low, high = float(rows.min(initial=0.0)), float(rows.max(initial=0.0))
    width = (high - low) / bins or 1.0 / bins
    places = np.clip(((rows - low) / width).astype(np.intp), 0, bins - 1)
    places += np.arange(len(rows))[:, None] * bins
    counts = np.bincount(places.reshape(-1), minlength=len(rows) * bins).reshape(len(rows), bins)
    return counts, np.asarray(low + width * np.arange(bins + 1))
