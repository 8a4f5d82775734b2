"""Statistics of a float activation: its range by channel and by sample, and what quantization cuts off."""

from __future__ import annotations

import math

import numpy as np

from quaver.diagnosis.statistics.cells import Doubles, TensorSurvey
from quaver.diagnosis.statistics.histograms import Histogram, LogHistogram
from quaver.types import Array

# Judgement: the number of samples with the largest values that are remembered; a sentence lists three of them.
MAX_LARGEST_SAMPLES = 8


class Activation:
    """The statistics of one tensor of the float model.

    Args:
        axis: the axis that holds channels; None if there is none.
        limits: the smallest and largest number that the quantized tensor can hold; values outside are clipped.
        histogram: True to keep a histogram.

    Attributes:
        low, high: the smallest and the largest value.
        count: the number of values, and `squares`, the sum of their squares.
        not_finite: the number of values that are NaN or infinite, and `first_not_finite`, the first sample with one.
        clipped: the number of values outside the limits, and `clipped_noise`, their squared distance from the limits.
        channel_low, channel_high: the smallest and the largest value of each channel.
        furthest: the samples with the largest values, as (largest absolute value, number of the sample).
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

    def add(self, values: Array, survey: TensorSurvey, first: int) -> None:
        """Add a batch and its survey; `first` is the number of its first sample."""
        bottom, top = float(survey.sample_low.min()), float(survey.sample_high.max())
        self.low, self.high = float(np.minimum(self.low, bottom)), float(np.maximum(self.high, top))  # propagates NaN
        self.count += values.size
        self._add_channels(survey.channel_low, survey.channel_high)
        self.squares += float(survey.signal.sum())
        self._add_reaches(np.maximum(np.abs(survey.sample_low), np.abs(survey.sample_high)), values, first)
        if self.histogram is not None:
            self.histogram.add(values, bottom, top)
        if self.limits is not None and (bottom < self.limits[0] or top > self.limits[1]):
            outside = (survey.sample_low < self.limits[0]) | (survey.sample_high > self.limits[1])
            self._add_clipped(values if outside.all() else values[outside], *self.limits)

    def _add_channels(self, low: Doubles, high: Doubles) -> None:
        if not self.channel_low.size:
            self.channel_low, self.channel_high = low, high
        elif self.channel_low.shape != low.shape:  # an axis whose length changes does not hold channels
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
        order = np.argsort(-reach, kind="stable")[:MAX_LARGEST_SAMPLES]
        samples = [*self.furthest, *((float(reach[at]), first + int(at)) for at in order)]
        self.furthest = sorted(samples, key=lambda entry: (-entry[0], entry[1]))[:MAX_LARGEST_SAMPLES]
        self._reaches.add(reach)

    def _add_clipped(self, values: Array, low: float, high: float) -> None:
        beyond = np.maximum(values - high, low - values)
        beyond = beyond[beyond > 0].astype(np.float64)
        self.clipped += beyond.size
        self.clipped_noise += float(np.square(beyond).sum())

    @property
    def range(self) -> tuple[float, float]:
        """The smallest and the largest value; NaN before the first value."""
        return (self.low, self.high) if self.count else (math.nan, math.nan)

    @property
    def reach(self) -> float:
        """The largest absolute value."""
        return max(abs(self.low), abs(self.high)) if self.count else math.nan

    @property
    def channel_reach(self) -> Doubles:
        """The largest absolute value of each channel."""
        return np.maximum(np.abs(self.channel_low), np.abs(self.channel_high))

    @property
    def usual_reach(self) -> float:
        """The median of the samples' largest absolute values."""
        return self._reaches.median()

    @property
    def excess(self) -> float:
        """The largest absolute value as a multiple of the median sample's; infinite if that is zero."""
        usual = self.usual_reach
        return self.reach / usual if usual else math.inf

    def beyond(self, limit: float) -> int:
        """Return how many samples have a larger absolute value than this."""
        return self._reaches.beyond(limit)
