"""Range of a tensor from a stream of samples, by three methods at once, in constant memory.

Besides the exact minimum and maximum, each tensor keeps a histogram over the upper half of its float32 bits: 65,536
bins whose width is 1/128 of their value. So outliers and the bulk both get fine bins, no range has to be known in
advance, and two histograms merge by addition. Only bins that are not empty are kept, a few thousand for most tensors.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from quaver.mask_values import MIN_MASK_VALUE, has_mask_values
from quaver.ops import CALIBRATIONS

# Bins of the upper 16 bits of a float32.
BINS = 2**16
# Share of the values inside the range of the method "percentile", in percent. Judgement.
PERCENTILE = 99.99
# Elements of one tensor that one sample adds to the histogram; minimum and maximum see all of them. Judgement: the
# 0.005 % in each tail of the percentile are then about one value of a sample.
MAX_ELEMENTS_PER_SAMPLE = 16384
# Elements next to each other that are taken together when a tensor is thinned: 64 bytes, a cache line.
RUN_LENGTH = 16
# Values of a tensor that are collected before they are counted, because counting touches all bins.
MAX_UNCOUNTED = 131072
# The same for all tensors together: 64 MiB of bin numbers.
MAX_UNCOUNTED_TOTAL = 32 * 2**20

Range = tuple[float, float]


@functools.cache
def bin_centres() -> NDArray[np.float64]:
    """Return the middle value of each bin, whose index is the upper 16 bits of a float32; 0 for NaN and infinity."""
    bits = (np.arange(BINS, dtype=np.uint32) << 16) | 0x8000
    with np.errstate(invalid="ignore"):
        values = bits.view(np.float32).astype(np.float64)
    values[~np.isfinite(values)] = 0.0
    values[[0, BINS // 2]] = 0.0
    return values


@functools.cache
def _ascending() -> NDArray[np.intp]:
    return np.argsort(bin_centres(), kind="stable")


def _thinned(flat: NDArray[np.float32], turn: int, limit: int = MAX_ELEMENTS_PER_SAMPLE) -> NDArray[np.float32]:
    """Return about `limit` of these values, in short runs spread evenly: many times faster than single values.

    The step between runs is coprime to the number of runs, so that all channels and positions of an image are sampled
    equally, whatever their layout. Each `turn` starts at another run.
    """
    if flat.size <= limit:
        return flat
    runs = flat[: flat.size // RUN_LENGTH * RUN_LENGTH].reshape(-1, RUN_LENGTH)
    step = -(-flat.size // limit)
    while math.gcd(step, len(runs)) > 1:
        step += 1
    return runs[turn % step :: step].reshape(-1)


@dataclass(slots=True)
class TensorStatistics:
    """Extremes and histogram of a stream of values."""

    low: float = np.inf
    high: float = -np.inf
    elements: int = 0
    max_uncounted: int = MAX_UNCOUNTED
    _bins: NDArray[np.uint16] = field(default_factory=lambda: np.zeros(0, np.uint16))
    _bin_counts: NDArray[np.int64] = field(
        default_factory=lambda: np.zeros(0, np.int64)
    )  # number of values in each of `_bins`
    _uncounted_bins: list[NDArray[np.uint16]] = field(default_factory=list)  # of values that are not counted yet
    _uncounted_count: int = 0
    _turn: int = 0

    def add(self, values: NDArray[np.float32], samples: int = 1) -> None:
        """Add one batch of `samples` samples. NaN and infinity show in `low` and `high`."""
        if values.size == 0:
            return
        flat = values.reshape(-1)
        self.low = float(np.minimum(self.low, flat.min()))  # numpy's minimum lets NaN through, Python's does not
        self.high = float(np.maximum(self.high, flat.max()))
        sampled = np.ascontiguousarray(_thinned(flat, self._turn, MAX_ELEMENTS_PER_SAMPLE * samples))
        self._turn += 1
        self._uncounted_bins.append(sampled.view(np.uint16)[1::2].copy())
        self.elements += sampled.size
        self._uncounted_count += sampled.size
        if self._uncounted_count > self.max_uncounted:
            counts = self.counts
            filled_bins = np.flatnonzero(counts)
            self._bins, self._bin_counts = filled_bins.astype(np.uint16), counts[filled_bins]
            self._uncounted_bins, self._uncounted_count = [], 0

    @property
    def counts(self) -> NDArray[np.int64]:
        """Return the histogram. It touches all 65,536 bins, so values are counted in large blocks."""
        uncounted = np.concatenate(self._uncounted_bins) if self._uncounted_bins else np.zeros(0, np.uint16)
        counts = np.bincount(uncounted, minlength=BINS)
        counts[self._bins] += self._bin_counts
        return counts

    @property
    def finite(self) -> bool:
        """Return True if no NaN or infinity came in."""
        return bool(np.isfinite(self.low) and np.isfinite(self.high))

    @property
    def has_mask_values(self) -> bool:
        """Return True if mask values widen every range so far that the other values get no steps."""
        low, high = min(self.low, 0.0), max(self.high, 0.0)
        if not self.elements or max(-low, high) < MIN_MASK_VALUE:
            return False
        counts = self.counts
        return has_mask_values(bin_centres(), counts, *_percentile(counts, low, high))

    def ranges(self) -> dict[str, Range]:
        """Return the range by each method. It always holds zero, and never exceeds the extremes."""
        low, high = min(self.low, 0.0), max(self.high, 0.0)
        if not self.elements:
            return dict.fromkeys(CALIBRATIONS, (0.0, 0.0))
        counts = self.counts
        return {
            "minmax": (low, high),
            "percentile": _percentile(counts, low, high),
            "entropy": _entropy(counts, low, high),
        }


def _percentile(counts: NDArray[np.int64], low: float, high: float) -> Range:
    order = _ascending()
    values = bin_centres()[order]
    cumulative = np.cumsum(counts[order])
    tail = (1 - PERCENTILE / 100) / 2 * cumulative[-1]
    bottom = values[np.searchsorted(cumulative, tail, side="right")]
    top = values[min(int(np.searchsorted(cumulative, cumulative[-1] - tail)), BINS - 1)]
    return max(low, min(float(bottom), 0.0)), min(high, max(float(top), 0.0))


def _entropy(counts: NDArray[np.int64], low: float, high: float, bins: int = 2048) -> Range:
    """Return the range whose clipped and quantized histogram is nearest to the full one by KL divergence.

    Exact zeros are left out: every scale represents them, and their spike would drag the threshold down. Cumulative
    sums evaluate all thresholds at once.
    """
    peak = max(-low, high)
    counts = counts.copy()
    counts[[0, BINS // 2]] = 0
    is_filled = counts > 0
    if peak <= 0 or not is_filled.any():
        return low, high
    index = np.minimum((np.abs(bin_centres()[is_filled]) * (bins / peak)).astype(np.int64), bins - 1)
    histogram = np.bincount(index, weights=counts[is_filled], minlength=bins).astype(np.float64)
    levels = 255 if low >= 0 else 128
    threshold = peak * best_threshold(histogram, levels) / bins
    return max(low, -threshold), min(high, threshold)


def best_threshold(histogram: NDArray[np.float64], levels: int) -> int:
    """Return how many of the first bins to keep so that `levels` steps over them have the smallest KL divergence."""
    bins = len(histogram)
    candidates = np.arange(levels, bins + 1, max(1, (bins - levels) // 240))
    mass = _cumulative(histogram)
    filled = _cumulative(histogram > 0)
    plogp = _cumulative(_xlogx(histogram))
    edges = np.rint(candidates[:, None] * np.arange(levels + 1) / levels).astype(np.intp)
    step_mass = np.diff(mass[edges])
    step_filled = np.diff(filled[edges])
    # The quantized distribution spreads a step's mass evenly over its filled bins.
    level = step_mass / np.maximum(step_filled, 1)
    log_level = np.log(np.maximum(level, 1e-300))
    # The reference keeps what lies beyond the threshold in its last bin, as clipping does.
    total, outside, last = mass[-1], mass[-1] - mass[candidates], histogram[candidates - 1]
    reference = plogp[candidates] - _xlogx(last) + _xlogx(last + outside)
    cross = (step_mass * log_level).sum(1) + outside * np.log(np.maximum(level[:, -1], 1e-12))
    divergence = (reference - cross) / total + np.log(np.maximum(step_mass.sum(1), 1e-300)) - np.log(total)
    return int(candidates[int(np.argmin(divergence))])


def _cumulative(values: NDArray[np.generic]) -> NDArray[np.float64]:
    return np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)])


def _xlogx(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return values * np.log(np.maximum(values, 1e-300))
