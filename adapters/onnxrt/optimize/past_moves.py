"""Scaling and shifting of channels, folded into a layer that lies beyond ops which only move or pool values.

`Conv, Squeeze, Transpose, Mul, Add` is a convolution with other weights and the same moves. A constant is followed
through the moves, axis by axis, to the layer before; if there is none, to the layer behind. Only if it arrives there as
one number for each channel, it goes into the weights.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from onnx import NodeProto

from quaver.adapters.onnxrt.load.graph import Graph, attribute, integer
from quaver.adapters.onnxrt.load.shape_inference import Dimensions, dimensions
from quaver.adapters.onnxrt.optimize.fold_affine import keeps_precision
from quaver.adapters.onnxrt.optimize.graph_edit import keep_loadable, producer, remove_node
from quaver.adapters.onnxrt.optimize.layers import (
    CONVOLUTIONS,
    bias_of,
    channel_axis,
    has_constant_weights,
    has_padding,
    input_channels,
    is_foldable_layer,
    normalization,
    output_channels,
    scale_inputs,
    scaled_weight,
    set_weights,
)
from quaver.types import Array

_SCALING = ("Add", "Sub", "Mul", "Div", "BatchNormalization")
_AVERAGES = ("AveragePool", "GlobalAveragePool")
_MAXIMA = ("MaxPool", "GlobalMaxPool")
_MOVES = ("Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Pad", *_AVERAGES, *_MAXIMA)
# Bounds for hostile models: real ones have a handful of moves between two layers, and fold few nodes into each. Each
# fold costs a new index of the graph.
_MAX_MOVES, _MAX_FOLDS = 16, 16

# Factors and shifts, with as many axes as the tensor that they apply to, and one place where they are all alike.
_Affine = tuple[Array, Array]


def fold_past_moves(graph: Graph) -> int:
    """Fold what scales and shifts channels into a layer beyond moves and pools, and return how many nodes went."""
    nodes = [node for node in graph.nodes if node.op_type in _SCALING and node.domain in ("", "ai.onnx")]
    dims = dimensions(graph) if nodes else {}
    folds = Counter[str]()
    left = [node for node in nodes if not _fold_back(graph, dims, node, folds)]
    # The last of several comes first: those before it are followed by moves alone when it is gone.
    count = len(nodes) - sum(not _fold_ahead(graph, dims, node, folds) for node in reversed(left))
    if count:
        keep_loadable(graph)
    return count


def _affine(graph: Graph, dims: Dimensions, node: NodeProto) -> tuple[str, _Affine] | None:
    """Return the tensor that a node scales and shifts, and the factors and shifts."""
    source = next((name for name in node.input if name not in graph.constants), "")
    shape = dims.get(source)
    if shape is None or list(node.input).count(source) != 1 or len(shape) == 0:
        return None
    if node.op_type == "BatchNormalization":
        pair = normalization(graph, node)
        if pair is None or len(shape) < 2:
            return None
        view = (1, -1, *[1] * (len(shape) - 2))
        return source, (pair[0].reshape(view), pair[1].reshape(view))
    slot = 1 - list(node.input).index(source)
    value = graph.constants.get(node.input[slot])
    if value is None or value.dtype != np.float32 or value.ndim > len(shape) or (slot == 0 and node.op_type == "Div"):
        return None
    wide = value.astype(np.float64).reshape([1] * (len(shape) - value.ndim) + list(value.shape))
    if any(count not in (1, size) for count, size in zip(wide.shape, shape, strict=True)):
        return None  # it would enlarge the tensor, or its size is not known
    one, zero = np.ones([1] * len(shape)), np.zeros([1] * len(shape))
    if node.op_type in ("Add", "Sub"):
        negative = node.op_type == "Sub"
        return source, (-one, wide) if negative and slot == 0 else (one, -wide if negative else wide)
    with np.errstate(divide="ignore"):
        factor = wide if node.op_type == "Mul" else 1.0 / wide
    return (source, (factor, zero)) if np.all(np.isfinite(factor)) else None


def _fold_back(graph: Graph, dims: Dimensions, node: NodeProto, folds: Counter[str]) -> bool:
    """Fold a node into the layer before the moves that it reads, unless too many were folded into that."""
    start = _affine(graph, dims, node)
    if start is None:
        return False
    (tip, affine), chain = start, list[NodeProto]()
    while graph.only_reader(tip) is not None and (step := producer(graph, tip)) is not None:
        if _is_layer(graph, step) or _biased_product(graph, step) is not None:
            break
        carried = _through(graph, dims, step, affine, back=True) if len(chain) < _MAX_MOVES else None
        if carried is None:
            return False
        chain.append(step)
        tip, affine = step.input[0], carried
    else:
        return False
    if not chain and step.op_type in CONVOLUTIONS:
        return False  # "into the layer before" does that
    if folds[step.name] == _MAX_FOLDS or not _scale_outputs(graph, step, affine, node.output[0]):
        return False
    folds[step.name] += 1
    (chain[0] if chain else step).output[0] = node.output[0]
    graph.nodes = [other for other in graph.nodes if other is not node]
    graph.merge(step.name, node.name)
    graph.index()
    return True


def _is_layer(graph: Graph, node: NodeProto) -> bool:
    if node.op_type == "ConvTranspose" and node.domain in ("", "ai.onnx"):
        return has_constant_weights(graph, node)
    return is_foldable_layer(graph, node)


def _biased_product(graph: Graph, node: NodeProto) -> NodeProto | None:
    """Return the MatMul with constant weights to which a node adds a bias, and nothing else reads."""
    if node.op_type != "Add" or node.domain or len(node.input) != 2:
        return None
    source = next((name for name in node.input if name not in graph.constants), "")
    product = producer(graph, source, "MatMul")
    if product is None or graph.only_reader(source) is not node or not is_foldable_layer(graph, product):
        return None
    bias = next((graph.constants[name] for name in node.input if name in graph.constants), None)
    width = graph.constants[product.input[1]].shape[1]
    return product if bias is not None and bias.dtype == np.float32 and bias.shape == (width,) else None


def _scale_outputs(graph: Graph, layer: NodeProto, affine: _Affine, label: str) -> bool:
    """Let a layer write scale * y + shift where it wrote y. Return False, and change nothing, if it cannot."""
    product = _biased_product(graph, layer)
    weighted = layer if product is None else product
    if len(graph.consumers[weighted.input[1]]) > 1:
        return False  # a second copy of a shared table costs more than the op
    weight = graph.constants[weighted.input[1]]
    convolves = layer.op_type in CONVOLUTIONS
    if convolves:
        channels = output_channels(weight, layer)
    else:
        channels = int(weight.shape[0] if integer(weighted, "transB", 0) else weight.shape[1])
    pair = _of_channels(affine, 1 if convolves else -1, channels)
    if pair is None:
        return False
    scale, shift = pair
    if convolves:
        set_weights(
            graph, layer, label, scaled_weight(weight, scale, layer), bias_of(graph, layer, channels) * scale + shift
        )
        return True
    if layer.op_type == "MatMul" and np.any(shift != 0):
        return False
    rows = scale.reshape(-1, 1) if integer(weighted, "transB", 0) else scale
    wide = weight.astype(np.float64) * rows
    if layer.op_type == "Gemm":
        set_weights(graph, layer, label, wide, bias_of(graph, layer, channels) * scale + shift)
        return True
    weighted.input[1] = _constant(graph, f"{label}.weight", wide)
    if product is not None:
        slot = next(slot for slot, name in enumerate(layer.input) if name in graph.constants)
        bias = graph.constants[layer.input[slot]].astype(np.float64)
        layer.input[slot] = _constant(graph, f"{label}.bias", bias * scale + shift)
    return True


def _constant(graph: Graph, wanted: str, value: Array) -> str:
    name = graph.free_name(wanted)
    graph.constants[name] = np.ascontiguousarray(value, np.float32)
    return name


def _fold_ahead(graph: Graph, dims: Dimensions, node: NodeProto, folds: Counter[str]) -> bool:
    """Fold a node into the layer behind the moves that read it, unless too many were folded into that."""
    start = None if _biased_product(graph, node) is not None else _affine(graph, dims, node)
    if start is None:
        return False
    (source, affine), tip, chain = start, node.output[0], list[NodeProto]()
    while (step := graph.only_reader(tip)) is not None and not is_foldable_layer(graph, step):
        carried = _through(graph, dims, step, affine, back=False) if len(chain) < _MAX_MOVES else None
        if carried is None or step.input[0] != tip:
            return False
        chain.append(step)
        tip, affine = step.output[0], carried
    if step is None or not chain or step.input[0] != tip or folds[step.name] == _MAX_FOLDS:
        return False
    pair = _of_channels(affine, channel_axis(step), input_channels(graph, step))
    if pair is None or (np.any(pair[1] != 0) and step.op_type == "Conv" and has_padding(step)):
        return False
    if not keeps_precision(graph, source, pair[0]) or not scale_inputs(graph, step, *pair, node.output[0]):
        return False
    remove_node(graph, node, step)
    folds[step.name] += 1
    return True


def _of_channels(affine: _Affine, axis: int, channels: int) -> _Affine | None:
    """Return one factor and one shift for each channel; None if they also differ along another axis."""
    flat = []
    for values in affine:
        sizes = list(values.shape)
        if sizes[axis] not in (1, channels) or math.prod(sizes) != sizes[axis]:
            return None
        flat.append(np.broadcast_to(values.reshape(-1), (channels,)))
    return flat[0], flat[1]


def _through(graph: Graph, dims: Dimensions, step: NodeProto, affine: _Affine, back: bool) -> _Affine | None:
    """Return factors and shifts of what a step reads, for those of what it writes (`back`), or the other way round."""
    if (
        step.op_type not in _MOVES
        or step.domain not in ("", "ai.onnx")
        or len([name for name in step.output if name]) != 1
    ):
        return None
    before, after = dims.get(step.input[0]), dims.get(step.output[0])
    if before is None or after is None:
        return None
    if step.op_type == "Pad":
        return affine if _pads_alike(graph, step, affine) else None
    if step.op_type in _AVERAGES or step.op_type in _MAXIMA:
        spatial = all(values.shape[2:] == (1,) * (values.ndim - 2) for values in affine)
        if step.op_type in _MAXIMA:
            return affine if spatial and np.all(affine[0] > 0) else None
        return affine if spatial and not _averages_padding(step) else None
    carry = _carrier(graph, step, before, after, back)
    if carry is None:
        return None
    moved = [carry(values) for values in affine]
    return None if moved[0] is None or moved[1] is None else (moved[0], moved[1])


def _averages_padding(pool: NodeProto) -> bool:
    return bool(integer(pool, "count_include_pad", 0)) and (has_padding(pool) or bool(integer(pool, "ceil_mode", 0)))


def _pads_alike(graph: Graph, pad: NodeProto, affine: _Affine) -> bool:
    """Return True if padding before or after scaling and shifting is the same: zeros stay zeros, copies stay copies."""
    pads = graph.constants.get(pad.input[1]) if len(pad.input) > 1 else None
    if pads is None or len(pad.input) > 3 or pads.size != 2 * affine[0].ndim or np.any(pads < 0):
        return False
    padded = [bool(front or behind) for front, behind in zip(*pads.reshape(2, -1).tolist(), strict=True)]
    if any(
        is_padded and max(size) > 1 for is_padded, *size in zip(padded, *(part.shape for part in affine), strict=True)
    ):
        return False
    mode = attribute(pad, "mode")
    if mode is not None and mode.s != b"constant":
        return mode.s in (b"edge", b"reflect", b"wrap")
    return not np.any(affine[1] != 0) and fills_with_zeros(graph, pad)


def fills_with_zeros(graph: Graph, pad: NodeProto) -> bool:
    """Return True if a Pad fills with the constant zero."""
    mode, fill = attribute(pad, "mode"), pad.input[2] if len(pad.input) > 2 else ""
    if mode is not None and mode.s != b"constant":
        return False
    value = graph.constants.get(fill)
    return not fill or (value is not None and value.size == 1 and float(value.reshape(())) == 0.0)


_Shape = tuple[int | str | None, ...]


def _carrier(
    graph: Graph, step: NodeProto, before: _Shape, after: _Shape, back: bool
) -> Callable[[Array], Array | None] | None:
    """Return a function that carries a constant from one side of a move to the other."""
    if step.op_type == "Transpose":
        order = transposed_axes(step, len(before))
        axes = np.argsort(order) if back else order
        return lambda values: values.transpose(axes)
    source, target = (after, before) if back else (before, after)
    if step.op_type in ("Squeeze", "Unsqueeze"):
        longer, shorter = (before, after) if step.op_type == "Squeeze" else (after, before)
        dropped = dropped_axes(graph, step, longer)
        if dropped is None or len(longer) - len(dropped) != len(shorter):
            return None
        if len(source) > len(target):
            # The tensor has one place along these axes, and so has a constant that does not enlarge it.
            return lambda values: np.squeeze(values, tuple(dropped))
        return lambda values: np.expand_dims(values, tuple(dropped))
    return lambda values: _reshaped(values, source, target)


def transposed_axes(node: NodeProto, rank: int) -> list[int]:
    """Return, for each axis that a Transpose writes, the axis that it reads."""
    entry = attribute(node, "perm")
    return list(range(rank))[::-1] if entry is None else [int(axis) for axis in entry.ints]


def dropped_axes(graph: Graph, step: NodeProto, longer: _Shape) -> list[int] | None:
    """Return the axes that a Squeeze drops, or that an Unsqueeze adds, as places in the longer shape."""
    entry = attribute(step, "axes")
    constant = graph.constants.get(step.input[1]) if len(step.input) > 1 else None
    if entry is None and constant is None:
        return [axis for axis, size in enumerate(longer) if size == 1] if len(step.input) < 2 else None
    axes = list(entry.ints) if entry is not None else np.asarray(constant).reshape(-1).tolist()
    return sorted(int(axis) % len(longer) for axis in axes)


def _reshaped(values: Array, source: _Shape, target: _Shape) -> Array | None:
    """Return a constant for another shape of the same numbers; None if that cannot be told from what is known."""
    if values.size == 1:
        return values.reshape([1] * len(target))
    wide, shape = [1] * len(source), [1] * len(target)
    covered = 0
    for first, second in _groups(source, target):
        covered += len(first)
        if any(values.shape[axis] > 1 for axis in first):
            for axes, sizes, dims in ((first, wide, source), (second, shape, target)):
                for axis in axes:
                    size = dims[axis]
                    if not isinstance(size, int):
                        return None
                    sizes[axis] = size
    rest = len(source) - covered
    if any(size > 1 for size in values.shape[:rest]):
        return None
    carried = np.broadcast_to(values, wide).reshape(shape)
    for axis in range(carried.ndim):
        first_place = carried.take([0], axis)
        if np.all(carried == first_place):
            carried = first_place
    return carried


def _groups(
    source: Sequence[int | str | None], target: Sequence[int | str | None]
) -> list[tuple[list[int], list[int]]]:
    """Return, from the end, the axes of two shapes of the same numbers that hold the same part of each index."""
    groups = []
    left, right = len(source), len(target)
    while left and right:
        if isinstance(source[left - 1], str) and source[left - 1] == target[right - 1]:
            left, right = left - 1, right - 1
            groups.append(([left], [right]))
            continue
        first, second = list[int](), list[int]()
        sizes = [1, 1]
        while not first or not second or sizes[0] != sizes[1]:
            side = 0 if not first or (second and sizes[0] < sizes[1]) else 1
            at = left if side == 0 else right
            size = None if at == 0 else (source, target)[side][at - 1]
            if not isinstance(size, int):
                return groups
            sizes[side] *= size
            (first, second)[side].append(at - 1)
            left, right = (left - 1, right) if side == 0 else (left, right - 1)
        groups.append((first, second))
    return groups
