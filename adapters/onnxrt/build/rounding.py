"""Rounding of matrices to blocks: number by number, or by second moments of the inputs (Frantar et al., "GPTQ", 2022).

With second moments, the columns of a matrix are rounded one by one. What rounding a column adds to the output is taken
back, as far as it can be, by the columns that are not rounded yet. The scale of a block is chosen for the least squared
error instead of the whole range.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto
from scipy.linalg.lapack import dtrtri

from quaver.adapters.onnxrt.build.affine import Float
from quaver.adapters.onnxrt.ops.blocks import BLOCK

Bytes = NDArray[np.uint8]
# Parts of the whole range that are tried for a block: a narrower one clips few numbers and rounds the others better.
# Judgement: below 0.8 no block of weights with a normal distribution gains.
_SHARES = (1.0, 0.92, 0.84)
# The part of each second moment, and of their mean, that is added to it. The first is the paper's. It bounds the
# corrections where there are few samples; activations of language models with huge outliers need more.
_DAMPING = (0.01, 0.1, 1.0)


class Source(NamedTuple):
    """The other side of a product with a matrix: the last axis of a tensor, or the patches that a convolution sees.

    Attributes:
        tensor: the tensor.
        kernel: the size of a patch; empty for a product.
        strides: the steps between patches.
        dilations: the steps between the values of a patch.
        padding: zeros before and after each axis.
    """

    tensor: str
    kernel: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()
    padding: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of_convolution(cls, node: NodeProto, shape: Sequence[int]) -> Source | None:
        """Return what the kernel of a convolution is multiplied with; None for groups and for computed padding.

        Args:
            node: the convolution.
            shape: the shape of its kernel.
        """
        values = {attribute.name: attribute for attribute in node.attribute}
        axes = len(shape) - 2
        is_padded_by_rule = "auto_pad" in values and values["auto_pad"].s not in (b"NOTSET", b"VALID")
        if ("group" in values and values["group"].i != 1) or is_padded_by_rule:
            return None

        def listed(name: str, default: int, count: int) -> tuple[int, ...]:
            return tuple(values[name].ints) if name in values else (default,) * count

        pads = listed("pads", 0, 2 * axes)
        padding = tuple(zip(pads[:axes], pads[axes:], strict=True))
        return cls(node.input[0], tuple(shape[2:]), listed("strides", 1, axes), listed("dilations", 1, axes), padding)

    def rows(self, values: Float, limit: int) -> Float:
        """Return rows of what the matrix is multiplied with.

        Args:
            values: the tensor.
            limit: most rows of patches; they are taken at even distances.
        """
        if not self.kernel:
            return values.reshape(-1, values.shape[-1])
        axes = tuple(range(2, values.ndim))
        padded = np.pad(values, ((0, 0), (0, 0), *self.padding))
        spans = tuple((size - 1) * step + 1 for size, step in zip(self.kernel, self.dilations, strict=True))
        windows = np.lib.stride_tricks.sliding_window_view(padded, spans, axes)
        steps = tuple(slice(None, None, step) for step in self.strides)
        inner = tuple(slice(None, None, step) for step in self.dilations)
        windows = windows[(slice(None), slice(None), *steps, *inner)]
        patches = np.moveaxis(windows, 1, len(axes) + 1)  # [samples, *positions, channels, *kernel]
        places = patches.shape[: len(axes) + 1]
        count = int(np.prod(places))
        chosen = np.unique(np.linspace(0, count - 1, min(limit, count)).astype(int))
        return np.ascontiguousarray(patches[np.unravel_index(chosen, places)].reshape(len(chosen), -1))


class Blocks(NamedTuple):
    """A matrix in blocks, not packed yet.

    Attributes:
        steps: [rows, blocks, size], from 0 to the largest number of these bits; the last block is padded with zeros.
        scale: [rows, blocks].
        zero: the step that stands for zero, [rows, blocks].
    """

    steps: Bytes
    scale: Float
    zero: Bytes

    def dequantized(self, width: int) -> Float:
        """Return the matrix as float32, with rows of this width."""
        real = (self.steps.astype(np.float32) - self.zero[..., None]) * self.scale[..., None]
        return real.reshape(len(real), -1)[:, :width]


def quantize_blocks(rows: Float, bits: int = 4, size: int = BLOCK) -> Blocks:
    """Round a matrix over the whole range of each block. Zero is exact, because it may mean padding."""
    blocks = in_blocks(rows, size)
    scale, zero = whole_ranges(blocks, bits)
    blocks /= scale[..., None]
    np.rint(blocks, out=blocks)
    blocks += zero[..., None]
    np.clip(blocks, 0, 2**bits - 1, out=blocks)
    return Blocks(blocks.astype(np.uint8), scale, zero)


def in_blocks(rows: Float, size: int) -> Float:
    """Return a copy of a matrix as [rows, blocks, size], padded with zeros."""
    height, width = rows.shape
    padded = np.zeros((height, -(-width // size) * size), np.float32)
    padded[:, :width] = rows
    return padded.reshape(height, -1, size)


def whole_ranges(blocks: Float, bits: int) -> tuple[Float, Bytes]:
    """Return the scale and the zero point of each block that cover its whole range."""
    levels = 2**bits - 1
    low, high = np.minimum(blocks.min(-1), 0), np.maximum(blocks.max(-1), 0)
    scale = (high / np.float32(levels) - low / np.float32(levels)).astype(np.float32)
    scale = np.where(scale < np.finfo(np.float32).tiny, np.float32(1), scale)
    return scale, np.clip(np.rint(-low / scale), 0, levels).astype(np.uint8)


def factor(moments: Float) -> Float:
    """Return the upper triangle U with U'U = inverse of the damped second moments."""
    # The Cholesky factor of the matrix in reversed order gives H = R R' with an upper triangle R, and U is its inverse.
    for share in _DAMPING:
        damped = moments[::-1, ::-1].astype(np.float64)
        diagonal = np.diag(damped)
        mean = float(diagonal.mean())
        damped[np.diag_indices_from(damped)] += share * (diagonal + mean) if mean > 0 else 1.0
        with contextlib.suppress(np.linalg.LinAlgError):
            lower = np.linalg.cholesky(damped)
            break
    else:
        lower = np.eye(len(moments))  # no positive matrix: columns are rounded one by one, without corrections
    upper, _ = dtrtri(np.asfortranarray(lower[::-1, ::-1]))
    return np.asarray(np.triu(upper), np.float32)


def round_blocks(rows: Float, upper: Float, bits: int, size: int) -> Blocks:
    """Return a matrix in blocks, rounded so that its product with the inputs changes least.

    Args:
        rows: the matrix; blocks run along its rows.
        upper: `factor` of the second moments of the inputs.
        bits: bits of a number.
        size: numbers of a block.
    """
    height, width = rows.shape
    columns = np.array(rows.T, np.float32, order="C")
    levels, count = 2**bits - 1, -(-width // size)
    steps = np.zeros((height, count, size), np.uint8)
    scales, zeros = np.ones((height, count), np.float32), np.zeros((height, count), np.uint8)
    for block in range(count):
        first, last = block * size, min((block + 1) * size, width)
        part = columns[first:last]
        scale, zero = best_ranges(in_blocks(part.T, size), bits)
        scales[:, block], zeros[:, block] = scale[:, 0], zero[:, 0]
        step, shift = scale[:, 0], zero[:, 0].astype(np.float32)
        errors = np.empty_like(part)
        for at in range(last - first):
            column = part[at]
            level = np.clip(np.rint(column / step) + shift, 0, levels)
            steps[:, block, at] = level
            errors[at] = (column - (level - shift) * step) / upper[first + at, first + at]
            if at + 1 < last - first:
                part[at + 1 :] -= upper[first + at, first + at + 1 : last, None] * errors[at]
        if last < width:
            columns[last:] -= upper[first:last, last:].T @ errors
        if last - first < size:  # padding stands for zero
            steps[:, block, last - first :] = zeros[:, block, None]
    return Blocks(steps, scales, zeros)


def best_ranges(blocks: Float, bits: int) -> tuple[Float, Bytes]:
    """Return the scale and the zero point of each block with the least squared error of its numbers."""
    levels = 2**bits - 1
    whole, _ = whole_ranges(blocks, bits)
    low = np.minimum(blocks.min(-1), 0)
    best_scale, best_zero = whole, np.zeros(whole.shape, np.uint8)
    least = np.full(whole.shape, np.inf, np.float32)
    for share in _SHARES:
        scale = whole * np.float32(share)
        zero = np.clip(np.rint(-low * np.float32(share) / scale), 0, levels)
        level = np.clip(np.rint(blocks / scale[..., None]) + zero[..., None], 0, levels)
        error = np.square((level - zero[..., None]) * scale[..., None] - blocks).sum(-1)
        better = error < least
        least = np.where(better, error, least)
        best_scale, best_zero = np.where(better, scale, best_scale), np.where(better, zero, best_zero).astype(np.uint8)
    return best_scale, best_zero
