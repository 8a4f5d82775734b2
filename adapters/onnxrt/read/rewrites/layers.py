"""A layer (Conv, Gemm, MatMul) as something that takes scaled and shifted channels: what goes into its weights."""

from __future__ import annotations

import numpy as np
from onnx import NodeProto

from quaver.adapters.onnxrt.read.channelwise import bias_of, has_constant_weights, set_weights
from quaver.adapters.onnxrt.read.graph import Array, Graph, attribute, integer, real

KINDS = ("Conv", "Gemm", "MatMul")


def takes_weights(graph: Graph, node: NodeProto) -> bool:
    """Whether a node is a layer with constant weights, that multiplies its first input with its second."""
    if node.op_type not in KINDS or node.domain not in ("", "ai.onnx") or node.input[0] in graph.constants:
        return False
    if not has_constant_weights(graph, node):
        return False
    if node.op_type == "Gemm":
        plain = real(node, "alpha", 1.0) == 1.0 == real(node, "beta", 1.0) and not integer(node, "transA", 0)
        bias = node.input[2] if len(node.input) > 2 else ""
        return plain and (not bias or graph.constants[bias].shape == (_width(graph, node),))
    return node.op_type == "Conv" or graph.constants[node.input[1]].ndim == 2


def input_channels(graph: Graph, node: NodeProto) -> int:
    """How many channels, or features, a layer reads."""
    weight = graph.constants[node.input[1]]
    if node.op_type == "Conv":
        return int(weight.shape[1] * integer(node, "group", 1))
    return int(weight.shape[1] if integer(node, "transB", 0) else weight.shape[0])


def channel_axis(node: NodeProto) -> int:
    """Where a layer's input has its channels."""
    return 1 if node.op_type == "Conv" else -1


def pads(node: NodeProto) -> bool:
    """Whether a convolution or pool puts something around its input."""
    entry, automatic = attribute(node, "pads"), attribute(node, "auto_pad")
    return (entry is not None and any(entry.ints)) or (
        automatic is not None and automatic.s not in (b"NOTSET", b"VALID", b"")
    )


def scale_inputs(graph: Graph, node: NodeProto, scale: Array, shift: Array, label: str) -> bool:
    """Let a layer read x where it read scale * x + shift. False, and nothing done, where there is no bias to take it.

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
