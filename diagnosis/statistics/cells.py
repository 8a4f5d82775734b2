"""Cut activations into cells, one for each sample and channel, and compute statistics of each cell.

A float tensor and its quantized forms are read together, in pieces that fit the processor's cache. So each value is
fetched from memory once, and integers are converted to real numbers only in the cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from quaver.affine import QuantizedTensor, as_float
from quaver.types import Array

Doubles = NDArray[np.float64]

# Values of one piece: 256 KiB of float32, which fits the second-level cache.
PIECE_SIZE = 65536
# float32 cannot hold the squares of smaller values.
MIN_FLOAT32_DIFFERENCE = 1e-15
# Rows of fewer values are handled by other numpy functions, which are faster there. Judgement.
MIN_ROW = 128
_ONES = np.ones(PIECE_SIZE, np.float32)


class Layout(NamedTuple):
    """How an array is cut.

    Attributes:
        samples: the number of samples; 1 if the array does not show which values belong to which.
        channels: the number of channels; 1 if no axis holds them.
        axis: the position of the channels in memory: 1 for samples x channels x rest, 2 for samples x rest x channels.
        move: the axis to move to the end first, if it is neither the second nor the last.
    """

    samples: int
    channels: int
    axis: int
    move: int | None = None


class TensorDifference(NamedTuple):
    """The difference between a float tensor and another form of it.

    Attributes:
        noise: the sum of squared differences of each cell (samples x channels).
        cross: the sum of products of the float tensor and the differences, over all cells.
        total: the sum of differences.
        sample_worst: the largest absolute difference in each sample; NaN if a difference is NaN.
    """

    noise: Doubles
    cross: float
    total: float
    sample_worst: Doubles

    @property
    def worst(self) -> float:
        """The largest absolute difference; NaN if a difference is NaN."""
        return float(self.sample_worst.max(initial=0.0))


class TensorSurvey(NamedTuple):
    """The statistics of a float tensor, and its differences from other forms of it.

    Attributes:
        channel_low, channel_high: the smallest and the largest value of each channel; NaN if a value is NaN.
        sample_low, sample_high: the smallest and the largest value of each sample.
        signal: the sum of squares of each cell.
        differences: the difference of each other form.
    """

    channel_low: Doubles
    channel_high: Doubles
    sample_low: Doubles
    sample_high: Doubles
    signal: Doubles
    differences: tuple[TensorDifference, ...]


def layout(shape: tuple[int, ...], samples: int, axis: int | None) -> Layout:
    """Return how to cut an array of this shape, whose channels lie along `axis`."""
    has_axis = axis is not None and len(shape) > 1 and -len(shape) <= axis < len(shape)
    channel_axis = axis % len(shape) if has_axis and axis is not None else None
    rows = samples if samples > 0 and shape and shape[0] % samples == 0 and channel_axis != 0 else 1
    if channel_axis is None:
        return Layout(rows, 1, 1)
    if channel_axis == len(shape) - 1:
        return Layout(rows, shape[channel_axis], 2)
    if channel_axis == 1 and shape[0] == rows:
        return Layout(rows, shape[1], 1)
    return Layout(rows, shape[channel_axis], 2, channel_axis)


def cut(values: Array, cut_layout: Layout) -> Array:
    """Return an array as samples x channels x rest, or as samples x rest x channels."""
    if values.dtype not in (np.float32, np.float64):
        values = values.astype(np.float32)
    return _cut(values, cut_layout)


def cut_form(values: Array | QuantizedTensor, cut_layout: Layout) -> Array | QuantizedTensor:
    """Cut another form of the array, which may be quantized."""
    if isinstance(values, QuantizedTensor):
        return values._replace(values=_cut(values.values, cut_layout))
    return cut(values, cut_layout)


def _cut(values: Array, cut_layout: Layout) -> Array:
    if cut_layout.move is not None:
        values = np.moveaxis(values, cut_layout.move, -1)
    shape = (
        (cut_layout.samples, cut_layout.channels, -1)
        if cut_layout.axis == 1
        else (cut_layout.samples, -1, cut_layout.channels)
    )
    return np.ascontiguousarray(values).reshape(shape)


def survey(values: Array, forms: Sequence[Array | QuantizedTensor], cut_layout: Layout) -> TensorSurvey:
    """Compute the statistics of a non-empty float tensor, and its differences from other forms that are cut alike."""
    with np.errstate(over="ignore", invalid="ignore"):
        result = _survey(values, forms, cut_layout)
        is_exact = np.isfinite(result.signal).all() and all(
            _fits_float32(difference) for difference in result.differences
        )
        if is_exact or values.dtype == np.float64:
            return result
        exact = [as_float(form).astype(np.float64) for form in forms]
        return _survey(values.astype(np.float64), exact, cut_layout)


def _fits_float32(difference: TensorDifference) -> bool:
    """Return True if float32 was exact enough for a difference: nothing overflowed or vanished."""
    return bool(
        np.isfinite(difference.noise).all() and (difference.worst == 0.0 or difference.worst > MIN_FLOAT32_DIFFERENCE)
    )


def _survey(values: Array, forms: Sequence[Array | QuantizedTensor], cut_layout: Layout) -> TensorSurvey:
    signal = np.zeros((cut_layout.samples, cut_layout.channels))
    low, high = (np.full(cut_layout.channels, end) for end in (np.inf, -np.inf))
    sample_low, sample_high = (np.full(cut_layout.samples, end) for end in (np.inf, -np.inf))
    buffer = np.empty(min(PIECE_SIZE, values.size) if forms else 0, values.dtype)
    accumulators = [_DifferenceSum(cut_layout, buffer) for _ in forms]
    for samples, channels, index in _pieces(values.shape, cut_layout):
        piece = values[index]
        for by_channel, by_sample, ufunc in ((low, sample_low, np.minimum), (high, sample_high, np.maximum)):
            in_channels, in_samples = _ends(piece, cut_layout, ufunc)
            by_channel[channels] = ufunc(by_channel[channels], in_channels)
            by_sample[samples] = ufunc(by_sample[samples], in_samples)
        signal[samples, channels] += _squares(piece, cut_layout)
        for accumulator, form in zip(accumulators, forms, strict=True):
            accumulator.add(piece, form, samples, channels, index)
    return TensorSurvey(
        low, high, sample_low, sample_high, signal, tuple(accumulator.result() for accumulator in accumulators)
    )


class _DifferenceSum:
    """Sum up the difference from one other form, piece by piece, with a shared buffer."""

    def __init__(self, cut_layout: Layout, buffer: Array) -> None:
        self._layout, self._buffer = cut_layout, buffer
        self._noise = np.zeros((cut_layout.samples, cut_layout.channels))
        self._cross = self._total = 0.0
        self._worst = np.zeros(cut_layout.samples)

    def add(
        self,
        piece: Array,
        form: Array | QuantizedTensor,
        samples: slice,
        channels: slice,
        index: tuple[slice, slice, slice],
    ) -> None:
        fits = piece.size <= self._buffer.size
        difference = self._buffer[: piece.size].reshape(piece.shape) if fits else np.empty(piece.shape, piece.dtype)
        if isinstance(form, QuantizedTensor):
            np.copyto(difference, form.values[index])
            form.rescaled(difference)
            np.subtract(difference, piece, out=difference)
        else:
            np.subtract(form[index], piece, out=difference)
        flat = difference.reshape(-1)
        self._noise[samples, channels] += _squares(difference, self._layout)
        self._cross += float(np.dot(piece.reshape(-1), flat))
        self._total += float(np.dot(flat, _ONES[: flat.size]) if flat.size <= PIECE_SIZE else flat.sum())
        rows = difference.reshape(len(difference), -1)
        furthest = np.maximum(rows.max(axis=1), -rows.min(axis=1))
        self._worst[samples] = np.maximum(self._worst[samples], furthest)  # propagates NaN

    def result(self) -> TensorDifference:
        return TensorDifference(self._noise, self._cross, self._total, self._worst)


def _squares(piece: Array, cut_layout: Layout) -> Array:
    """Return the sum of squares of each cell."""
    if cut_layout.axis == 2:
        return np.asarray(np.einsum("nsc,nsc->nc", piece, piece))
    if piece.shape[2] < MIN_ROW:
        return np.asarray(np.einsum("ncs,ncs->nc", piece, piece))
    return np.asarray(np.matmul(piece[:, :, None, :], piece[:, :, :, None])[:, :, 0, 0])


def _ends(piece: Array, cut_layout: Layout, ufunc: np.ufunc) -> tuple[Array, Array]:
    """Return the smallest (or the largest) value of each channel and of each sample of a piece."""
    if cut_layout.axis == 1 and (len(piece) == 1 or piece.shape[2] >= MIN_ROW):
        cells = _of_rows(piece, ufunc)
        return ufunc.reduce(cells, axis=0), ufunc.reduce(cells, axis=1)
    together = ufunc.reduce(piece, axis=0, keepdims=True)
    in_channels = _of_rows(together, ufunc)[0] if cut_layout.axis == 1 else ufunc.reduce(together[0], axis=0)
    return in_channels, ufunc.reduce(piece.reshape(len(piece), -1), axis=1)


def _of_rows(piece: Array, ufunc: np.ufunc) -> Array:
    """Return the smallest (or the largest) value along the last axis. On short rows this is faster than `reduce`."""
    starts = np.arange(0, piece.size, piece.shape[2])
    return np.asarray(ufunc.reduceat(piece.reshape(-1), starts)).reshape(piece.shape[:2])


def _pieces(shape: tuple[int, ...], cut_layout: Layout) -> Iterator[tuple[slice, slice, tuple[slice, slice, slice]]]:
    """Yield pieces that are contiguous in memory: their samples, their channels, and their place in the array."""
    every = slice(None)
    each = shape[1] * shape[2]
    if each <= PIECE_SIZE:
        step = max(1, PIECE_SIZE // max(each, 1))
        for start in range(0, cut_layout.samples, step):
            part = slice(start, start + step)
            yield part, every, (part, every, every)
        return
    inner = cut_layout.channels == 1 and cut_layout.axis == 1  # one cell per sample may be cut anywhere
    length, step = (shape[2], PIECE_SIZE) if inner else (shape[1], max(1, PIECE_SIZE // shape[2]))
    for sample in range(cut_layout.samples):
        row = slice(sample, sample + 1)
        for start in range(0, length, step):
            part = slice(start, start + step)
            if inner:
                yield row, every, (row, every, part)
            else:
                yield row, part if cut_layout.axis == 1 else every, (row, part, every)
