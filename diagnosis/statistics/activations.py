"""What a float activation looks like: its range, by channel and by sample, and what of it quantizing cuts off."""

from __future__ import annotations

import math

import numpy as np

from quaver.diagnosis.statistics.cells import Doubles, Surveyed
from quaver.diagnosis.statistics.histograms import Histogram, LogHistogram
from quaver.types import Array

# So many of the samples that reach furthest are remembered.
FURTHEST = 8


class Activation:
    """The statistics of one tensor of the float model.

    Args:
        axis: which axis holds channels.
        limits: what the tensor can hold when it is quantized; what lies outside is clipped.
        histogram: whether to keep one.

    Attributes:
        low, high: the smallest and the largest value.
        count: how many values were seen, and `squares`, the sum of their squares.
        not_finite: how many of them are NaN or infinite, and `first_not_finite`, the first sample that has one.
        clipped: how many lie outside the limits, and `clipped_noise`, their squared distance from these.
        channel_low, channel_high: the smallest and the largest value of each channel.
        furthest: the samples that reach furthest, as (largest size of a value, number of the sample).
    """

    def __init__(
        self, axis: int | None = None, limits: tuple[float, float] | None = None, histogram: bool = True
    ) -> None:
        self.axis, self.limits = axis, limits
        self.low, self.high = math.inf, -math.inf
        self.count = self.not_finite = self.clipped = 0
        self.clipped_noise = self.squares = 0.0
        self.first_not_finite: int | None = None
        self.channel_low: Doubles = np.zeros(0)
        self.channel_high: Doubles = np.zeros(0)
        self.furthest: list[tuple[float, int]] = []
        self.histogram = Histogram() if histogram else None
        self._reaches = LogHistogram()

    def add(self, values: Array, found: Surveyed, first: int) -> None:
        """Take in a batch and what was seen of it; `first` is the number of its first sample."""
        bottom, top = float(found.sample_low.min()), float(found.sample_high.max())
        self.low, self.high = float(np.minimum(self.low, bottom)), float(np.maximum(self.high, top))  # NaN goes through
        self.count += values.size
        self._add_channels(found.channel_low, found.channel_high)
        self.squares += float(found.signal.sum())
        self._add_reaches(np.maximum(np.abs(found.sample_low), np.abs(found.sample_high)), values, first)
        if self.histogram is not None:
            self.histogram.add(values, bottom, top)
        if self.limits is not None and (bottom < self.limits[0] or top > self.limits[1]):
            outside = (found.sample_low < self.limits[0]) | (found.sample_high > self.limits[1])
            self._add_clipped(values if outside.all() else values[outside], *self.limits)

    def _add_channels(self, low: Doubles, high: Doubles) -> None:
        if not self.channel_low.size:
            self.channel_low, self.channel_high = low, high
        elif self.channel_low.shape != low.shape:  # an axis whose length changes holds no channels
            self.channel_low = np.minimum(self.channel_low.min(), low.min())[None]
            self.channel_high = np.maximum(self.channel_high.max(), high.max())[None]
        else:
            self.channel_low = np.minimum(self.channel_low, low)
            self.channel_high = np.maximum(self.channel_high, high)

    def _add_reaches(self, reach: Doubles, values: Array, first: int) -> None:
        if not np.isfinite(reach).all():
            self.not_finite += int(np.count_nonzero(~np.isfinite(values)))
            if self.first_not_finite is None:
                self.first_not_finite = first + int(np.argmin(np.isfinite(reach)))
            return
        order = np.argsort(-reach, kind="stable")[:FURTHEST]
        known = [*self.furthest, *((float(reach[at]), first + int(at)) for at in order)]
        self.furthest = sorted(known, key=lambda entry: (-entry[0], entry[1]))[:FURTHEST]
        self._reaches.add(reach)

    def _add_clipped(self, values: Array, low: float, high: float) -> None:
        beyond = np.maximum(values - high, low - values)
        beyond = beyond[beyond > 0].astype(np.float64)
        self.clipped += beyond.size
        self.clipped_noise += float(np.square(beyond).sum())

    @property
    def range(self) -> tuple[float, float]:
        """The smallest and the largest value; NaN before any was seen."""
        return (self.low, self.high) if self.count else (math.nan, math.nan)

    @property
    def reach(self) -> float:
        """The largest size of a value."""
        return max(abs(self.low), abs(self.high)) if self.count else math.nan

    @property
    def channel_reach(self) -> Doubles:
        """The largest size of a value in each channel."""
        return np.maximum(np.abs(self.channel_low), np.abs(self.channel_high))

    @property
    def usual_reach(self) -> float:
        """The reach that half of the samples stay below."""
        return self._reaches.median()

    @property
    def excess(self) -> float:
        """How many times as far as the usual sample the furthest one reaches; infinite if the usual one is all zero."""
        usual = self.usual_reach
        return self.reach / usual if usual else math.inf

    def beyond(self, limit: float) -> int:
        """How many samples reach further."""
        return self._reaches.beyond(limit)
