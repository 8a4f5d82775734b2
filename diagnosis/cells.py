"""Activations cut into cells, one for each sample and channel, and what two tensors differ by in each.

Everything is done in pieces that fit the processor's cache, so that it costs about as much as reading the tensors once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Doubles = NDArray[np.float64]

# Values of one piece.
_PIECE = 65536
# Squares of smaller values do not fit float32.
_SMALL = 1e-15


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
    """What two tensors differ by; `noise` and `signal` for each cell (samples x channels).

    Attributes:
        noise: the sum of squared differences.
        signal: the sum of squares of the first tensor.
        cross: the sum of products of the first tensor and the differences, over all cells.
        total: the sum of differences.
        worst: the largest size of a difference; NaN if there is one.
    """

    noise: Doubles
    signal: Doubles
    cross: float
    total: float
    worst: float


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
    if how.move is not None:
        values = np.moveaxis(values, how.move, -1)
    shape = (how.samples, how.channels, -1) if how.axis == 1 else (how.samples, -1, how.channels)
    return np.ascontiguousarray(values).reshape(shape)


def extremes(values: Array, how: Layout) -> tuple[Doubles, Doubles]:
    """The smallest and the largest value of each cell of a cut array; NaN where a cell holds one."""
    over = 3 - how.axis
    return values.min(axis=over).astype(np.float64), values.max(axis=over).astype(np.float64)


def compare(before: Array, after: Array, how: Layout) -> Compared:
    """Compare two arrays that were cut alike."""
    with np.errstate(over="ignore", invalid="ignore"):
        found = _compare(before, after, how)
        clear = np.isfinite(found.noise).all() and np.isfinite(found.signal).all()
        if before.dtype == np.float64 or (clear and (found.worst == 0.0 or found.worst > _SMALL)):
            return found
        return _compare(before.astype(np.float64), after.astype(np.float64), how)


def _compare(before: Array, after: Array, how: Layout) -> Compared:
    noise, signal = np.zeros((how.samples, how.channels)), np.zeros((how.samples, how.channels))
    cross = total = worst = 0.0
    room = np.empty(min(2 * _PIECE, before.size), before.dtype)
    ones = np.ones(room.size, before.dtype)
    one_cell = noise.size == 1
    over = "nsc,nsc->nc" if how.axis == 2 else "ncs,ncs->nc"
    for place, one, other in _pieces(before, after, how):
        fits = one.size <= room.size
        gaps = room[: one.size].reshape(one.shape) if fits else np.empty(one.shape, one.dtype)
        np.subtract(other, one, out=gaps)
        flat, values = gaps.reshape(-1), one.reshape(-1)
        noise[place] += np.dot(flat, flat) if one_cell else np.einsum(over, gaps, gaps)
        signal[place] += np.dot(values, values) if one_cell else np.einsum(over, one, one)
        cross += float(np.dot(values, flat))
        total += float(np.dot(flat, ones[: flat.size]) if fits else flat.sum())
        worst = float(np.maximum(worst, np.maximum(flat.max(), -flat.min())))
    return Compared(noise, signal, cross, total, worst)


def _pieces(before: Array, after: Array, how: Layout) -> Iterator[tuple[tuple[slice, slice], Array, Array]]:
    """Pieces of both arrays that lie in one run of memory, with their place among the cells."""
    each = before[0].size
    if each <= _PIECE:
        step = max(1, _PIECE // max(each, 1))
        for start in range(0, how.samples, step):
            part = slice(start, start + step)
            yield (part, slice(None)), before[part], after[part]
        return
    if how.channels == 1 and how.axis == 1:  # one cell a sample: cut it anywhere
        for sample in range(how.samples):
            row = slice(sample, sample + 1)
            for start in range(0, each, _PIECE):
                part = slice(start, start + _PIECE)
                yield (row, slice(None)), before[row, :, part], after[row, :, part]
        return
    step = max(1, _PIECE // before.shape[2])
    for sample in range(how.samples):
        row = slice(sample, sample + 1)
        for start in range(0, before.shape[1], step):
            part = slice(start, start + step)
            yield (row, part if how.axis == 1 else slice(None)), before[row, part], after[row, part]
