"""The range of a tensor from a stream of samples, by three methods at once, in constant memory.

Besides the exact minimum and maximum, each tensor keeps a histogram over the upper half of its float32 bits:
65,536 bins whose width is 1/128 of the value they hold, so outliers and the bulk are both seen finely, no range
has to be known in advance, and two histograms merge by addition. Only bins that hold something are kept: a few
thousand of a usual tensor.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from quaver.mask_values import FAR, has_mask_values
from quaver.ops import CALIBRATIONS

BINS = 65536
PERCENTILE = 99.99
# More elements of one tensor in one sample than this are thinned out; minimum and maximum see all of them.
ELEMENTS = 16384
RUN = 16
# So many values of a tensor are collected before they are counted, as long as all tensors together hold no more than
# the second number.
WAITING = 131072
WAITING_TOGETHER = 32 * 2**20

Range = tuple[float, float]


@functools.cache
def bin_centres() -> NDArray[np.float64]:
    """The value in the middle of each bin (its index is the upper 16 bits of a float32); 0 for NaN and inf."""
    bits = (np.arange(BINS, dtype=np.uint32) << 16) | 0x8000
    with np.errstate(invalid="ignore"):
        values = bits.view(np.float32).astype(np.float64)
    values[~np.isfinite(values)] = 0.0
    values[[0, BINS // 2]] = 0.0
    return values


@functools.cache
def _ascending() -> NDArray[np.intp]:
    return np.argsort(bin_centres(), kind="stable")


def _thinned(flat: NDArray[np.float32], turn: int, most: int = ELEMENTS) -> NDArray[np.float32]:
    """About `most` of these values in short runs from all over, which is many times faster than one by one.

    The step from run to run has no factor in common with their number, so that runs fall on all channels and on all
    places of an image alike, however they are laid out; and they start elsewhere at each turn.
    """
    if flat.size <= most:
        return flat
    runs = flat[: flat.size // RUN * RUN].reshape(-1, RUN)
    step = -(-flat.size // most)
    while math.gcd(step, len(runs)) > 1:
        step += 1
    return runs[turn % step :: step].reshape(-1)


@dataclass(slots=True)
class TensorStatistics:
    """What a stream of values has shown so far."""

    low: float = np.inf
    high: float = -np.inf
    elements: int = 0
    most_waiting: int = WAITING
    _bins: NDArray[np.uint16] = field(default_factory=lambda: np.zeros(0, np.uint16))
    _held: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))  # how many values in each of these
    _waiting: list[NDArray[np.uint16]] = field(default_factory=list)  # bins of values that are not counted yet
    _uncounted: int = 0
    _turn: int = 0

    def add(self, values: NDArray[np.float32], samples: int = 1) -> None:
        """Take in one batch of so many samples. NaN and infinity show in `low` and `high`."""
        if values.size == 0:
            return
        flat = values.reshape(-1)
        self.low = float(np.minimum(self.low, flat.min()))  # numpy's minimum lets NaN through, Python's does not
        self.high = float(np.maximum(self.high, flat.max()))
        some = np.ascontiguousarray(_thinned(flat, self._turn, ELEMENTS * samples))
        self._turn += 1
        self._waiting.append(some.view(np.uint16)[1::2].copy())
        self.elements += some.size
        self._uncounted += some.size
        if self._uncounted > self.most_waiting:
            counts = self.counts
            held = np.flatnonzero(counts)
            self._bins, self._held = held.astype(np.uint16), counts[held]
            self._waiting, self._uncounted = [], 0

    @property
    def counts(self) -> NDArray[np.int64]:
        """The histogram. All 65,536 bins are touched, so it pays to count many values at once."""
        waiting = np.concatenate(self._waiting) if self._waiting else np.zeros(0, np.uint16)
        counts = np.bincount(waiting, minlength=BINS)
        counts[self._bins] += self._held
        return counts

    @property
    def finite(self) -> bool:
        """Whether no NaN or infinity was seen."""
        return bool(np.isfinite(self.low) and np.isfinite(self.high))

    @property
    def has_mask_values(self) -> bool:
        """Whether what stands for infinity leaves the other values no steps, however the range is chosen."""
        low, high = min(self.low, 0.0), max(self.high, 0.0)
        if not self.elements or max(-low, high) < FAR:
            return False
        counts = self.counts
        return has_mask_values(bin_centres(), counts, *_percentile(counts, low, high))

    def ranges(self) -> dict[str, Range]:
        """The range by each method. Always holds zero, and never reaches beyond what was seen."""
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
    seen = np.cumsum(counts[order])
    tail = (1 - PERCENTILE / 100) / 2 * seen[-1]
    bottom = values[np.searchsorted(seen, tail, side="right")]
    top = values[min(int(np.searchsorted(seen, seen[-1] - tail)), BINS - 1)]
    return max(low, min(float(bottom), 0.0)), min(high, max(float(top), 0.0))


def _entropy(counts: NDArray[np.int64], low: float, high: float, bins: int = 2048) -> Range:
    """The threshold on |x| whose clipped and quantized histogram is nearest to the full one (KL divergence).

    Exact zeros are left out: they are representable in any scale, and their spike would drag the threshold
    down. All thresholds are tried at once through cumulative sums.
    """
    peak = max(-low, high)
    counts = counts.copy()
    counts[[0, BINS // 2]] = 0
    held = counts > 0
    if peak <= 0 or not held.any():
        return low, high
    index = np.minimum((np.abs(bin_centres()[held]) * (bins / peak)).astype(np.int64), bins - 1)
    histogram = np.bincount(index, weights=counts[held], minlength=bins).astype(np.float64)
    levels = 255 if low >= 0 else 128
    threshold = peak * best_threshold(histogram, levels) / bins
    return max(low, -threshold), min(high, threshold)


def best_threshold(histogram: NDArray[np.float64], levels: int) -> int:
    """How many of the first bins to keep, so that `levels` steps over them tell most about the whole."""
    bins = len(histogram)
    candidates = np.arange(levels, bins + 1, max(1, (bins - levels) // 240))
    mass = _running(histogram)
    filled = _running(histogram > 0)
    plogp = _running(_xlogx(histogram))
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


def _running(values: NDArray[np.generic]) -> NDArray[np.float64]:
    return np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)])


def _xlogx(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return values * np.log(np.maximum(values, 1e-300))
