"""Weights before and after quantization: a summary of each, and the distribution of values over channels.

All statistics are over every element: mean, standard deviation sqrt(mean((w - mean)^2)), variance (its square), and the
mean squared error mean((optimized - input)^2).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from quaver.affine import QuantizedTensor, as_float
from quaver.diagnosis.statistics.cells import Doubles
from quaver.diagnosis.statistics.histograms import Counts, channel_counts
from quaver.introspection import OpWeight
from quaver.types import Array

# Judgement: bins of a weight's histogram, whose rows are channels.
BINS = 128
# Judgement: with more output channels, neighbours share a row of the histogram; a figure has fewer pixels.
MAX_ROWS = 1024


@dataclass(frozen=True, slots=True)
class Summary:
    """The range and moments of a weight. All are NaN if the weight holds NaN or nothing."""

    low: float
    high: float
    mean: float
    deviation: float
    variance: float


@dataclass(frozen=True, slots=True)
class WeightRow:
    """One row of the weights summary."""

    op: str
    mse: float
    before: Summary
    after: Summary


@dataclass(frozen=True, slots=True)
class WeightShape:
    """How the values of a weight are distributed over its channels.

    Both errors weight each value by the size of the input that it multiplies.

    Attributes:
        outer: the largest absolute value of each output channel.
        inner: the largest absolute value of each input channel.
        scales: the number of scales of the quantized weight.
        steps: the number of steps to each side of zero: 127 in 8 bits.
        one_error: squared error over squared signal in the median output channel, with one scale for all.
        channel_error: that error with a scale per output channel.
    """

    outer: Doubles
    inner: Doubles
    scales: int
    steps: int
    one_error: float
    channel_error: float


def summarize(weight: OpWeight) -> WeightRow:
    """Return the summary row of one weight."""
    optimized = as_float(weight.optimized)
    gap = optimized.astype(np.float64) - weight.fp32
    mse = float(np.mean(np.square(gap))) if gap.size else float("nan")
    return WeightRow(weight.op, mse, _summary(weight.fp32), _summary(optimized))


def _summary(values: Array) -> Summary:
    if not values.size:
        return Summary(*[float("nan")] * 5)
    variance = float(np.var(values, dtype=np.float64))
    return Summary(
        float(values.min()), float(values.max()), float(np.mean(values, dtype=np.float64)), variance**0.5, variance
    )


def shape_of(weight: OpWeight, input_reach: Doubles | None = None) -> WeightShape | None:
    """Return how a quantized weight is distributed over its channels; None if it has none or is float.

    Args:
        weight: the weight before and after quantization.
        input_reach: the largest absolute value that comes in through each input channel; None if unknown.
    """
    if weight.axis is None or not weight.fp32.size or not isinstance(weight.optimized, QuantizedTensor):
        return None
    parameters = weight.optimized.parameters
    steps = parameters.steps // 2  # weights are symmetric in every supported framework
    rows = np.moveaxis(weight.fp32, weight.axis, 0).astype(np.float64)
    rows = rows.reshape(len(rows), -1)
    importance = _importance(weight, input_reach)
    outer = np.abs(rows).max(axis=1)
    return WeightShape(
        outer,
        _inner(weight),
        parameters.scale.size,
        steps,
        _median_error(rows, np.full(len(rows), outer.max()), steps, importance),
        _median_error(rows, outer, steps, importance),
    )


def _inner(weight: OpWeight) -> Doubles:
    if weight.inner is None:
        return np.zeros(0)
    rows = np.moveaxis(weight.fp32, weight.inner, 0)
    return np.asarray(np.abs(rows).reshape(len(rows), -1).max(axis=1), np.float64)


def _importance(weight: OpWeight, input_reach: Doubles | None) -> Doubles:
    """Return how much each value of an output channel counts: the square of the input that it multiplies."""
    shape = list(weight.fp32.shape)
    assert weight.axis is not None
    if input_reach is None or weight.inner is None or len(input_reach) != shape[weight.inner] or not input_reach.any():
        return np.ones(weight.fp32.size // shape[weight.axis])
    wide = [1] * len(shape)
    wide[weight.inner] = -1
    whole = np.broadcast_to(np.square(input_reach).reshape(wide), shape)
    return np.asarray(np.moveaxis(whole, weight.axis, 0)[0].reshape(-1))


def _median_error(rows: Doubles, reach: Doubles, steps: int, importance: Doubles) -> float:
    """Return squared error over squared signal in the median row, rounded to `steps` steps up to `reach`."""
    step = np.where(reach > 0, reach, 1.0)[:, None] / steps
    noise = (np.square(np.rint(rows / step) * step - rows) * importance).sum(axis=1)
    signal = (np.square(rows) * importance).sum(axis=1)
    nonzero = signal > 0
    return float(np.median(noise[nonzero] / signal[nonzero])) if nonzero.any() else 0.0


@dataclass(frozen=True, slots=True)
class WeightHistogram:
    """Histograms of a weight: one per output channel or group of neighbouring channels, or a single one.

    Attributes:
        op: the op's name.
        counts: a row for each channel or group.
        edges: the borders of the bins.
        low, high: the smallest and the largest value of each channel.
        scales: the scales of the quantized weight, one or one per channel; empty if it is float.
    """

    op: str
    counts: Counts
    edges: Doubles
    low: Doubles
    high: Doubles
    scales: Doubles


def histogram(weight: OpWeight) -> WeightHistogram | None:
    """Return the histogram of a weight; None if it holds NaN or nothing."""
    if not weight.fp32.size or not np.isfinite(weight.fp32).all():
        return None
    values = weight.fp32 if weight.axis is not None else weight.fp32.reshape(1, -1)
    counts, edges = channel_counts(values, weight.axis or 0, BINS)
    run = -(-len(counts) // MAX_ROWS)
    rows = np.moveaxis(values, weight.axis or 0, 0).reshape(len(counts), -1)
    quantized = isinstance(weight.optimized, QuantizedTensor)
    scales = weight.optimized.parameters.scale.reshape(-1) if quantized else np.zeros(0)  # type: ignore[union-attr]
    return WeightHistogram(
        weight.op,
        np.add.reduceat(counts, range(0, len(counts), run)),
        edges,
        rows.min(axis=1).astype(np.float64),
        rows.max(axis=1).astype(np.float64),
        scales.astype(np.float64),
    )
