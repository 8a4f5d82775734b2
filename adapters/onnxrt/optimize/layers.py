"""Layers: how scaling and shifting channels goes into the weights of a layer, before or behind it."""

from __future__ import annotations

import numpy as np
from onnx import NodeProto

from quaver.adapters.onnxrt.load.graph import Graph, attribute, integer, real
from quaver.types import Array

CONVOLUTIONS = ("Conv", "ConvTranspose")


def scale_and_shift(
    graph: Graph, node: NodeProto, source: str, channels: int, rank: int, axis: int = 1
) -> tuple[Array, Array] | None:
    """Return the factor and the shift of each channel, if scaling and shifting channels is all that a node does.

    Args:
        graph: the graph.
        node: the node.
        source: the tensor it scales and shifts.
        channels: how many channels that tensor has.
        rank: how many axes it has.
        axis: which of them holds the channels.
    """
    if node.domain not in ("", "ai.onnx"):
        return None
    if node.op_type == "BatchNormalization":
        return normalization(graph, node) if axis == 1 and node.input[0] == source else None
    if node.op_type not in ("Add", "Sub", "Mul", "Div") or len(node.input) != 2 or list(node.input).count(source) != 1:
        return None
    slot = 1 - list(node.input).index(source)
    value = graph.constants.get(node.input[slot])
    if value is None or value.dtype != np.float32 or (slot == 0 and node.op_type == "Div"):
        return None
    # One number, or one for each channel; other shapes would broadcast along another axis.
    along = [channels if i == axis % rank else 1 for i in range(rank)]
    if value.ndim > rank or (value.size != 1 and [1] * (rank - value.ndim) + list(value.shape) != along):
        return None
    flat = np.broadcast_to(value.astype(np.float64).reshape(-1), (channels,))
    unit_scale, no_shift = np.ones(channels), np.zeros(channels)
    if node.op_type in ("Mul", "Div"):
        with np.errstate(divide="ignore"):
            scale = flat if node.op_type == "Mul" else 1.0 / flat
        return (scale, no_shift) if np.all(np.isfinite(scale)) else None
    if node.op_type == "Add":
        return unit_scale, flat
    return (-unit_scale, flat) if slot == 0 else (unit_scale, -flat)


def normalization(graph: Graph, node: NodeProto) -> tuple[Array, Array] | None:
    """Return the factor and the shift of each channel of a BatchNormalization; None if they are computed."""
    if integer(node, "training_mode", 0) or len([name for name in node.output if name]) > 1:
        return None
    if not all(name in graph.constants for name in node.input[1:5]):
        return None
    gamma, beta, mean, variance = (graph.constants[name].astype(np.float64) for name in node.input[1:5])
    scale = gamma / np.sqrt(variance + real(node, "epsilon", 1e-5))
    return scale, beta - mean * scale


def has_constant_weights(graph: Graph, node: NodeProto) -> bool:
    """Return True if the weight of a layer, and its bias if it has one, are float32 constants."""
    names = [name for name in node.input[1:3] if name]
    arrays = [graph.constants.get(name) for name in names]
    return bool(arrays) and all(array is not None and array.dtype == np.float32 for array in arrays)


def fold_followers(graph: Graph, scalars: bool) -> int:
    """Fold what scales and shifts channels behind a convolution into its weights, and return how many nodes went.

    Without `scalars` a single number for all channels stays: it may belong to an activation (hard-swish) that is to be
    recognised first.
    """
    gone: set[int] = set()
    for node in graph.nodes:
        if node.op_type not in CONVOLUTIONS or node.domain or not has_constant_weights(graph, node):
            continue
        weight = graph.constants[node.input[1]]
        channels = output_channels(weight, node)
        while (follower := graph.only_reader(node.output[0])) is not None:
            if not scalars and _by_one_number(graph, follower, channels):
                break
            affine = scale_and_shift(graph, follower, node.output[0], channels, weight.ndim)
            if affine is None:
                break
            _fold_into_producer(graph, node, follower.output[0], *affine)
            graph.merge(node.name, follower.name)
            gone.add(id(follower))
    graph.nodes = [node for node in graph.nodes if id(node) not in gone]
    graph.index()
    return len(gone)


def _by_one_number(graph: Graph, node: NodeProto, channels: int) -> bool:
    sizes = [graph.constants[name].size for name in node.input if name in graph.constants]
    return channels > 1 and sizes == [1]


def _fold_into_producer(graph: Graph, node: NodeProto, output: str, scale: Array, shift: Array) -> None:
    weight = graph.constants[node.input[1]]
    if len(node.input) > 2 and node.input[2]:
        shift = shift + graph.constants[node.input[2]].astype(np.float64) * scale
    set_weights(graph, node, output, scaled_weight(weight, scale, node), shift)
    node.output[0] = output


def set_weights(graph: Graph, node: NodeProto, label: str, weight: Array, bias: Array) -> None:
    """Let a layer read another weight and bias, in float32, named after `label`. Others may read the old ones."""
    names = [graph.free_name(f"{label}.weight"), graph.free_name(f"{label}.bias")]
    for name, array in zip(names, (weight, bias), strict=True):
        graph.constants[name] = np.ascontiguousarray(array, np.float32)
    first = node.input[0]
    del node.input[:]
    node.input.extend([first, *names])


def bias_of(graph: Graph, node: NodeProto, channels: int) -> Array:
    """Return the bias of a layer in float64; zeros if it has none."""
    if len(node.input) > 2 and node.input[2]:
        return graph.constants[node.input[2]].astype(np.float64)
    return np.zeros(channels)


def output_channels(weight: Array, node: NodeProto) -> int:
    """Return how many channels a convolution writes."""
    return int(weight.shape[0] if node.op_type == "Conv" else weight.shape[1] * integer(node, "group", 1))


def scaled_weight(weight: Array, scale: Array, node: NodeProto) -> Array:
    """Return the weight with each output channel scaled. A ConvTranspose has them on axis 1, once per group."""
    wide = weight.astype(np.float64)
    if node.op_type == "Conv":
        return np.asarray(wide * scale.reshape(-1, *[1] * (weight.ndim - 1)))
    groups = integer(node, "group", 1)
    parts = wide.reshape(groups, -1, *weight.shape[1:])
    scaling_factor = scale.reshape(groups, 1, -1, *[1] * (weight.ndim - 2))
    return np.asarray((parts * scaling_factor).reshape(weight.shape))


LAYER_KINDS = ("Conv", "Gemm", "MatMul")


def is_foldable_layer(graph: Graph, node: NodeProto) -> bool:
    """Return True for a layer with constant weights that multiplies its first input with its second."""
    if node.op_type not in LAYER_KINDS or node.domain not in ("", "ai.onnx") or node.input[0] in graph.constants:
        return False
    if not has_constant_weights(graph, node):
        return False
    if node.op_type == "Gemm":
        plain = real(node, "alpha", 1.0) == 1.0 == real(node, "beta", 1.0) and not integer(node, "transA", 0)
        bias = node.input[2] if len(node.input) > 2 else ""
        return plain and (not bias or graph.constants[bias].shape == (_width(graph, node),))
    return node.op_type == "Conv" or graph.constants[node.input[1]].ndim == 2


def input_channels(graph: Graph, node: NodeProto) -> int:
    """Return how many channels, or features, a layer reads."""
    weight = graph.constants[node.input[1]]
    if node.op_type == "Conv":
        return int(weight.shape[1] * integer(node, "group", 1))
    return int(weight.shape[1] if integer(node, "transB", 0) else weight.shape[0])


def channel_axis(node: NodeProto) -> int:
    """Return the channel axis of a layer's input."""
    return 1 if node.op_type == "Conv" else -1


def has_padding(node: NodeProto) -> bool:
    """Return True if a convolution or pool pads its input."""
    entry, automatic = attribute(node, "pads"), attribute(node, "auto_pad")
    return (entry is not None and any(entry.ints)) or (
        automatic is not None and automatic.s not in (b"NOTSET", b"VALID", b"")
    )


def scale_inputs(graph: Graph, node: NodeProto, scale: Array, shift: Array, label: str) -> bool:
    """Let a layer read x where it read scale * x + shift. Return False, and change nothing, if no bias can take the
    shift.

    A padded convolution must not be given a shift: zeros around the input would not be shifted.
    """
    weight = graph.constants[node.input[1]].astype(np.float64)
    if node.op_type == "Conv":
        groups = integer(node, "group", 1)
        parts = weight.reshape(groups, -1, *weight.shape[1:])
        view = (groups, 1, weight.shape[1], *[1] * (weight.ndim - 2))
        bias = bias_of(graph, node, len(weight))
        bias = bias + (parts * shift.reshape(view)).reshape(len(weight), -1).sum(axis=1)
        set_weights(graph, node, label, (parts * scale.reshape(view)).reshape(weight.shape), bias)
        return True
    across = weight.T if integer(node, "transB", 0) else weight
    added, taller = shift @ across, across * scale.reshape(-1, 1)
    if node.op_type == "MatMul":
        return _scale_product(graph, node, taller, added, label)
    bias = bias_of(graph, node, across.shape[1]) + added
    set_weights(graph, node, label, taller.T if integer(node, "transB", 0) else taller, bias)
    return True


def _scale_product(graph: Graph, node: NodeProto, weight: Array, added: Array, label: str) -> bool:
    if np.any(added != 0):
        addition = graph.only_reader(node.output[0])
        other = next((n for n in addition.input if n != node.output[0]), "") if addition is not None else ""
        bias = graph.constants.get(other)
        if addition is None or addition.op_type != "Add" or bias is None or bias.shape != added.shape:
            return False
        name = graph.free_name(f"{label}.bias")
        graph.constants[name] = (bias.astype(np.float64) + added).astype(np.float32)
        addition.input[list(addition.input).index(other)] = name
    name = graph.free_name(f"{label}.weight")
    graph.constants[name] = np.ascontiguousarray(weight, np.float32)
    node.input[1] = name
    graph.index()
    return True


def _width(graph: Graph, node: NodeProto) -> int:
    shape = graph.constants[node.input[1]].shape
    return int(shape[0] if integer(node, "transB", 0) else shape[1])
