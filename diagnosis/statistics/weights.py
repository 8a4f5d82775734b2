"""Weights before and after quantization: the summary of each, and why one scale may not do.

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

BINS = 128
# Neighbouring output channels share a row of the histogram where there are more than this.
ROWS = 1024


@dataclass(frozen=True, slots=True)
class Summary:
    """What a tensor of weights looks like. NaN where it holds one, or holds nothing."""

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
    """How the values of a weight lie in its channels.

    Attributes:
        outer: the largest size of a value for each output channel.
        inner: for each input channel.
        scales: how many scales the quantized weight has.
        steps: how many steps it has to each side of zero: 127 in 8 bits.
        one_error: squared error over squared signal in the median output channel, with one scale for all.
        channel_error: the same with a scale for each output channel.

    Both errors count what an input channel carries: a weight that multiplies larger values matters more.
    """

    outer: Doubles
    inner: Doubles
    scales: int
    steps: int
    one_error: float
    channel_error: float


def summarize(weight: OpWeight) -> WeightRow:
    """The row of one op."""
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


def shape_of(weight: OpWeight, carried: Doubles | None = None) -> WeightShape | None:
    """Look into the channels of a quantized weight; None if it has none, or is float.

    `carried` is the largest size of what comes in through each input channel, if that is known.
    """
    if weight.axis is None or not weight.fp32.size or not isinstance(weight.optimized, QuantizedTensor):
        return None
    parameters = weight.optimized.parameters
    steps = parameters.steps // 2  # symmetric in every framework we know
    rows = np.moveaxis(weight.fp32, weight.axis, 0).astype(np.float64)
    rows = rows.reshape(len(rows), -1)
    importance = _importance(weight, carried)
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


def _importance(weight: OpWeight, carried: Doubles | None) -> Doubles:
    """How much each value of an output channel counts, from what it is multiplied with."""
    shape = list(weight.fp32.shape)
    assert weight.axis is not None
    if carried is None or weight.inner is None or len(carried) != shape[weight.inner] or not carried.any():
        return np.ones(weight.fp32.size // shape[weight.axis])
    wide = [1] * len(shape)
    wide[weight.inner] = -1
    whole = np.broadcast_to(np.square(carried).reshape(wide), shape)
    return np.asarray(np.moveaxis(whole, weight.axis, 0)[0].reshape(-1))


def _median_error(rows: Doubles, reach: Doubles, steps: int, importance: Doubles) -> float:
    """Squared error over squared signal in the median row, rounded to so many steps that reach so far."""
    step = np.where(reach > 0, reach, 1.0)[:, None] / steps
    noise = (np.square(np.rint(rows / step) * step - rows) * importance).sum(axis=1)
    signal = (np.square(rows) * importance).sum(axis=1)
    alive = signal > 0
    return float(np.median(noise[alive] / signal[alive])) if alive.any() else 0.0


@dataclass(frozen=True, slots=True)
class WeightHistogram:
    """How the values of a weight lie: for each output channel or run of them, or in one row if it has none.

    Attributes:
        op: the op's name.
        counts: a row for each channel, or run of neighbouring ones.
        edges: the borders of the bins.
        low, high: the smallest and the largest value of each channel.
        scales: of the quantized weight, one or one for each channel; empty if it is float.
    """

    op: str
    counts: Counts
    edges: Doubles
    low: Doubles
    high: Doubles
    scales: Doubles


def histogram(weight: OpWeight) -> WeightHistogram | None:
    """The histogram of a weight; None if it holds nothing, or NaN."""
    if not weight.fp32.size or not np.isfinite(weight.fp32).all():
        return None
    values = weight.fp32 if weight.axis is not None else weight.fp32.reshape(1, -1)
    counts, edges = channel_counts(values, weight.axis or 0, BINS)
    run = -(-len(counts) // ROWS)
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
