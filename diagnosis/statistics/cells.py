"""Activations cut into cells, one for each sample and channel, and what lies in each.

A float tensor and its quantized forms are gone through together, in pieces that fit the processor's cache, so that each
is fetched from memory once, and what is in integers is only made real there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from quaver.affine import QuantizedTensor, as_float
from quaver.types import Array

Doubles = NDArray[np.float64]

# Values of one piece.
_PIECE = 65536
# Squares of smaller values do not fit float32.
_SMALL = 1e-15
# Numpy deals with rows of fewer values than this in other ways better.
_ROW = 128
_ONES = np.ones(_PIECE, np.float32)


class Layout(NamedTuple):
    """How an array is cut.

    Attributes:
        samples: how many; one if the array does not show which values belong to which.
        channels: how many; one if no axis holds them.
        axis: where in memory the channels lie: 1 for samples x channels x rest, 2 for samples x rest x channels.
        move: the axis to move to the end first, if it is neither the second nor the last.
    """

    samples: int
    channels: int
    axis: int
    move: int | None = None


class Compared(NamedTuple):
    """What another tensor differs by.

    Attributes:
        noise: the sum of squared differences of each cell (samples x channels).
        cross: the sum of products of the first tensor and the differences, over all cells.
        total: the sum of differences.
        sample_worst: the largest size of a difference in each sample; NaN if there is one.
    """

    noise: Doubles
    cross: float
    total: float
    sample_worst: Doubles

    @property
    def worst(self) -> float:
        """The largest size of a difference; NaN if there is one."""
        return float(self.sample_worst.max(initial=0.0))


class Surveyed(NamedTuple):
    """What was seen of a float tensor, and of its other forms beside it.

    Attributes:
        channel_low, channel_high: the smallest and the largest value of each channel; NaN if there is one.
        sample_low, sample_high: of each sample.
        signal: the sum of squares of each cell.
        others: what each of the other forms differs by.
    """

    channel_low: Doubles
    channel_high: Doubles
    sample_low: Doubles
    sample_high: Doubles
    signal: Doubles
    others: tuple[Compared, ...]


def layout(shape: tuple[int, ...], samples: int, axis: int | None) -> Layout:
    """How to cut an array of this shape, whose channels lie along `axis`."""
    known = axis is not None and len(shape) > 1 and -len(shape) <= axis < len(shape)
    at = axis % len(shape) if known and axis is not None else None
    rows = samples if samples > 0 and shape and shape[0] % samples == 0 and at != 0 else 1
    if at is None:
        return Layout(rows, 1, 1)
    if at == len(shape) - 1:
        return Layout(rows, shape[at], 2)
    if at == 1 and shape[0] == rows:
        return Layout(rows, shape[1], 1)
    return Layout(rows, shape[at], 2, at)


def cut(values: Array, how: Layout) -> Array:
    """An array as samples x channels x rest, or as samples x rest x channels."""
    if values.dtype not in (np.float32, np.float64):
        values = values.astype(np.float32)
    return _cut(values, how)


def cut_form(values: Array | QuantizedTensor, how: Layout) -> Array | QuantizedTensor:
    """The same for another form of the array, which may be in integers."""
    if isinstance(values, QuantizedTensor):
        return values._replace(values=_cut(values.values, how))
    return cut(values, how)


def _cut(values: Array, how: Layout) -> Array:
    if how.move is not None:
        values = np.moveaxis(values, how.move, -1)
    shape = (how.samples, how.channels, -1) if how.axis == 1 else (how.samples, -1, how.channels)
    return np.ascontiguousarray(values).reshape(shape)


def survey(values: Array, others: Sequence[Array | QuantizedTensor], how: Layout) -> Surveyed:
    """Look at a float tensor that holds something, and at other forms of it; all were cut alike."""
    with np.errstate(over="ignore", invalid="ignore"):
        found = _survey(values, others, how)
        clear = np.isfinite(found.signal).all() and all(_is_clear(other) for other in found.others)
        if clear or values.dtype == np.float64:
            return found
        exact = [as_float(other).astype(np.float64) for other in others]
        return _survey(values.astype(np.float64), exact, how)


def _is_clear(other: Compared) -> bool:
    return bool(np.isfinite(other.noise).all() and (other.worst == 0.0 or other.worst > _SMALL))


def _survey(values: Array, others: Sequence[Array | QuantizedTensor], how: Layout) -> Surveyed:
    signal = np.zeros((how.samples, how.channels))
    low, high = (np.full(how.channels, end) for end in (np.inf, -np.inf))
    sample_low, sample_high = (np.full(how.samples, end) for end in (np.inf, -np.inf))
    room = np.empty(min(_PIECE, values.size) if others else 0, values.dtype)
    gaps = [_Gap(how, room) for _ in others]
    for samples, channels, index in _pieces(values.shape, how):
        one = values[index]
        for by_channel, by_sample, ufunc in ((low, sample_low, np.minimum), (high, sample_high, np.maximum)):
            in_channels, in_samples = _ends(one, how, ufunc)
            by_channel[channels] = ufunc(by_channel[channels], in_channels)
            by_sample[samples] = ufunc(by_sample[samples], in_samples)
        signal[samples, channels] += _squares(one, how)
        for gap, other in zip(gaps, others, strict=True):
            gap.add(one, other, samples, channels, index)
    return Surveyed(low, high, sample_low, sample_high, signal, tuple(gap.found() for gap in gaps))


class _Gap:
    """Adds up what one of the other forms differs by, piece by piece, which it puts into `room`."""

    def __init__(self, how: Layout, room: Array) -> None:
        self._how, self._room = how, room
        self._noise = np.zeros((how.samples, how.channels))
        self._cross = self._total = 0.0
        self._worst = np.zeros(how.samples)

    def add(
        self,
        one: Array,
        other: Array | QuantizedTensor,
        samples: slice,
        channels: slice,
        index: tuple[slice, slice, slice],
    ) -> None:
        fits = one.size <= self._room.size
        gap = self._room[: one.size].reshape(one.shape) if fits else np.empty(one.shape, one.dtype)
        if isinstance(other, QuantizedTensor):
            np.copyto(gap, other.values[index])
            other.rescaled(gap)
            np.subtract(gap, one, out=gap)
        else:
            np.subtract(other[index], one, out=gap)
        flat = gap.reshape(-1)
        self._noise[samples, channels] += _squares(gap, self._how)
        self._cross += float(np.dot(one.reshape(-1), flat))
        self._total += float(np.dot(flat, _ONES[: flat.size]) if flat.size <= _PIECE else flat.sum())
        rows = gap.reshape(len(gap), -1)
        furthest = np.maximum(rows.max(axis=1), -rows.min(axis=1))
        self._worst[samples] = np.maximum(self._worst[samples], furthest)  # lets NaN through

    def found(self) -> Compared:
        return Compared(self._noise, self._cross, self._total, self._worst)


def _squares(piece: Array, how: Layout) -> Any:
    """The sum of squares of each cell."""
    if how.axis == 2:
        return np.einsum("nsc,nsc->nc", piece, piece)
    if piece.shape[2] < _ROW:
        return np.einsum("ncs,ncs->nc", piece, piece)
    return np.matmul(piece[:, :, None, :], piece[:, :, :, None])[:, :, 0, 0]


def _ends(piece: Array, how: Layout, ufunc: np.ufunc) -> tuple[Array, Array]:
    """The smallest (or the largest) value of each channel and of each sample of a piece."""
    if how.axis == 1 and (len(piece) == 1 or piece.shape[2] >= _ROW):
        cells = _of_rows(piece, ufunc)
        return ufunc.reduce(cells, axis=0), ufunc.reduce(cells, axis=1)
    together = ufunc.reduce(piece, axis=0, keepdims=True)
    in_channels = _of_rows(together, ufunc)[0] if how.axis == 1 else ufunc.reduce(together[0], axis=0)
    return in_channels, ufunc.reduce(piece.reshape(len(piece), -1), axis=1)


def _of_rows(piece: Array, ufunc: np.ufunc) -> Array:
    """The smallest (or the largest) value along the last axis; faster than `reduce`, most of all on short rows."""
    starts = np.arange(0, piece.size, piece.shape[2])
    return np.asarray(ufunc.reduceat(piece.reshape(-1), starts)).reshape(piece.shape[:2])


def _pieces(shape: tuple[int, ...], how: Layout) -> Iterator[tuple[slice, slice, tuple[slice, slice, slice]]]:
    """Pieces that lie in one run of memory: their samples, their channels, and where they are in the array."""
    every = slice(None)
    each = shape[1] * shape[2]
    if each <= _PIECE:
        step = max(1, _PIECE // max(each, 1))
        for start in range(0, how.samples, step):
            part = slice(start, start + step)
            yield part, every, (part, every, every)
        return
    inner = how.channels == 1 and how.axis == 1  # one cell a sample: cut it anywhere
    length, step = (shape[2], _PIECE) if inner else (shape[1], max(1, _PIECE // shape[2]))
    for sample in range(how.samples):
        row = slice(sample, sample + 1)
        for start in range(0, length, step):
            part = slice(start, start + step)
            if inner:
                yield row, every, (row, every, part)
            else:
                yield row, part if how.axis == 1 else every, (row, part, every)
