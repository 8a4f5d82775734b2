"""Weights whose products cannot overflow 16 bits on x86 processors without VNNI.

On such a processor (AVX2, but neither AVX512-VNNI nor AVX-VNNI) ONNX Runtime multiplies uint8 activations with int8
weights by `vpmaddubsw`: it adds the products of two neighbours of the reduction and saturates the sum at 16 bits. With
VNNI the same sums are exact. So a model can give other answers there than where it was tuned.

Neighbours are the values 2i and 2i + 1 of the reduction. A matrix product sums along the rows of the matrix; a
convolution sums kernel position by kernel position, all input channels of each position next to each other. The order
was established with an emulator, one pair at a time. The test that repeats it is
`tests/adapters/onnxrt/build/test_onnx_saturation_on_processors.py`.

An activation is at most 255, so two neighbours of one sign cannot overflow if they add up to at most 128
(255 * 128 = 32640 <= 32767 < 255 * 129). Two neighbours of different signs never do. This holds for every input.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from quaver.adapters.onnxrt.load.graph import Graph, integer
from quaver.adapters.onnxrt.ops.unit import Unit
from quaver.types import Array

if TYPE_CHECKING:
    from quaver.adapters.onnxrt.build.affine import Float

# The limit for the sum of two neighbours of one sign, derived above.
PAIR_LIMIT = 128
# The largest int8 weight; scales are a peak divided by it.
WEIGHT_LIMIT = 127

# The axes of a weight that a kernel sums over, in the order of the sum; the last one varies fastest.
Reduction = tuple[int, ...]


def reduction_of(graph: Graph, unit: Unit) -> Reduction | None:
    """Return the axes of a unit's weight that its int8 kernel sums over, in order; None if no sum can saturate.

    Depthwise convolutions and products of two activations have kernels that add in 32 bits on every processor.
    """
    if unit.weight is None or unit.is_embedding:
        return None
    node, shape = graph.nodes[unit.anchor], graph.constants[unit.weight].shape
    if node.op_type == "Conv":
        is_depthwise = shape[1] == 1 and shape[0] == integer(node, "group", 1)
        return None if is_depthwise else (*range(2, len(shape)), 1)
    if node.op_type == "Gemm":
        return (1,) if integer(node, "transB", 0) else (0,)
    return (len(shape) - 2,) if node.op_type == "MatMul" else None


def pair_peak(weight: Float, axis: int | None, reduction: Reduction) -> Float:
    """Return the least peak (127 times the scale) with which no two neighbours of a weight overflow.

    Args:
        weight: the float values.
        axis: the axis with a scale for each index, which is not summed over; None for one scale.
        reduction: the axes that the kernel sums over.
    """
    first, second = _neighbours(weight, reduction)
    summed_axes = None
    if axis is not None:
        channel = _outer_axes(weight.ndim, reduction).index(axis)
        summed_axes = tuple(dim for dim in range(first.ndim) if dim != channel)
    positive = np.maximum(first, 0) + np.maximum(second, 0)
    negative = np.minimum(first, 0) + np.minimum(second, 0)
    largest = np.maximum(positive.max(axis=summed_axes), -negative.min(axis=summed_axes))
    return np.asarray(largest * np.float32(WEIGHT_LIMIT / PAIR_LIMIT), np.float32)


def bound_pairs(values: NDArray[np.int8], reduction: Reduction) -> NDArray[np.int8]:
    """Return int8 weights in which no two neighbours overflow, as near to these as can be.

    With a scale from `pair_peak` only rounding can leave a pair above the limit. The excess is taken from both.
    """
    first, second = (part.astype(np.int16) for part in _neighbours(values, reduction))
    excess = np.where(first * second > 0, np.abs(first + second) - PAIR_LIMIT, 0).clip(0).astype(np.int16)
    if not excess.any():
        return values
    sign, half = np.sign(first), excess // 2
    pairs = np.stack([first - sign * (excess - half), second - sign * half], axis=-1).astype(np.int8)
    order = [*_outer_axes(values.ndim, reduction), *reduction]
    shape = [values.shape[dim] for dim in order]
    length = int(np.prod([values.shape[dim] for dim in reduction]))
    flat = pairs.reshape(*pairs.shape[:-2], -1)[..., :length]
    return np.ascontiguousarray(flat.reshape(shape).transpose(np.argsort(order)))


def has_overflow(values: NDArray[np.int8], reduction: Reduction) -> bool:
    """Return whether two neighbours of an int8 weight can overflow 16 bits at some activation."""
    first, second = (part.astype(np.int16) for part in _neighbours(values, reduction))
    return bool(np.any((first * second > 0) & (np.abs(first + second) > PAIR_LIMIT)))


def _outer_axes(rank: int, reduction: Reduction) -> list[int]:
    return [dim for dim in range(rank) if dim not in reduction]


def _neighbours(values: Array, reduction: Reduction) -> tuple[Array, Array]:
    """Return the first and the second of each pair, behind the axes that are not summed over."""
    outer = _outer_axes(values.ndim, reduction)
    ordered = values.transpose([*outer, *reduction])
    flat = ordered.reshape(*ordered.shape[: len(outer)], -1)
    if flat.shape[-1] % 2:
        flat = np.concatenate([flat, np.zeros_like(flat[..., :1])], axis=-1)
    return flat[..., ::2], flat[..., 1::2]
