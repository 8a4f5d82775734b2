"""Convolutions whose number of output channels does not fit the fast int8 kernel, computed with a few channels more.

Below 16 channels, or if the number is no multiple of 4, the runtime's int8 kernel takes a general path that is up to
twice as slow. Its float kernel computes blocks of 16 in any case (docs/kernels.md). So channels are repeated, and the
first ones are cut out again. Repeated channels, other than channels of zeros, leave all statistics of the tensor as
they are.
"""

from __future__ import annotations

import math

import numpy as np
from onnx import NodeProto, helper

from quaver.adapters.onnxrt.load.graph import Graph, integer
from quaver.adapters.onnxrt.load.shape_inference import infer_types
from quaver.adapters.onnxrt.optimize.graph_edit import is_float32
from quaver.adapters.onnxrt.optimize.layers import bias_of, has_constant_weights, set_weights

# The fewest channels that the fast kernel computes. Numbers of input and output channels are multiples of the second
# (docs/kernels.md).
_MIN_CHANNELS, _MULTIPLE = 16, 4
# Products for each result below which the kernels take the same time (docs/kernels.md).
_MIN_PRODUCTS = 128
# Activations that are computed together with the convolution, in fp32 and in int8.
_FUSED = ("Relu", "Clip")


def fill_blocks(graph: Graph) -> int:
    """Repeat output channels of convolutions up to a number that the fast kernel takes; return how many there were."""
    layers = [node for node in graph.nodes if _is_slow(graph, node)]
    for layer in layers:
        _fill(graph, layer)
    if layers:
        infer_types(graph)
    return len(layers)


def _is_slow(graph: Graph, node: NodeProto) -> bool:
    if node.op_type != "Conv" or node.domain not in ("", "ai.onnx") or integer(node, "group", 1) != 1:
        return False
    if not is_float32(graph, node.input[0]) or node.input[0] in graph.constants:
        return False
    if not has_constant_weights(graph, node):
        return False
    outputs, inputs, *window = graph.constants[node.input[1]].shape
    is_computed = inputs % _MULTIPLE == 0 and inputs * math.prod(window) >= _MIN_PRODUCTS
    return bool(is_computed and outputs != _fast_channels(outputs))


def _fast_channels(outputs: int) -> int:
    return max(_MIN_CHANNELS, -(-outputs // _MULTIPLE) * _MULTIPLE)


def _fill(graph: Graph, layer: NodeProto) -> None:
    """Repeat the channels of a layer, and cut the first ones out behind it and its activation."""
    weight = graph.constants[layer.input[1]]
    channels = len(weight)
    repeated = np.arange(_fast_channels(channels)) % channels
    bias = bias_of(graph, layer, channels)
    set_weights(graph, layer, layer.output[0], weight[repeated], bias[repeated])
    last = layer
    follower = graph.only_reader(layer.output[0])
    if follower is not None and follower.op_type in _FUSED and not follower.domain:
        last = follower
    result = last.output[0]
    block = graph.free_name(f"{result}.block")
    if last is not layer:
        inner = graph.free_name(f"{layer.output[0]}.block")
        graph.types[inner], graph.ranks[inner] = graph.types[layer.input[0]], weight.ndim
        layer.output[0] = last.input[0] = inner
    last.output[0] = block
    graph.types[block], graph.ranks[block] = graph.types[layer.input[0]], weight.ndim
    limits = [_constant(graph, f"{result}.{label}", value) for label, value in (("from", 0), ("to", channels))]
    cut = helper.make_node(
        "Slice", [block, *limits, _constant(graph, f"{result}.axis", 1)], [result], f"{last.name}.channels"
    )
    graph.nodes.insert(next(at for at, node in enumerate(graph.nodes) if node is last) + 1, cut)
    graph.index()


def _constant(graph: Graph, wanted: str, value: int) -> str:
    name = graph.free_name(wanted)
    graph.constants[name] = np.array([value], np.int64)
    return name
