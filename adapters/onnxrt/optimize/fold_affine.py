"""Fold what scales and shifts channels just before a layer into that layer's weights.

A shift before a convolution with padding stays: around the input there are zeros, which it does not reach.
"""

from __future__ import annotations

import numpy as np
from onnx import NodeProto

from quaver.adapters.onnxrt.load.graph import Graph
from quaver.adapters.onnxrt.ops.decoder import tied_weights
from quaver.adapters.onnxrt.optimize.graph_edit import producer, removable_producer, remove_node
from quaver.adapters.onnxrt.optimize.layers import (
    channel_axis,
    has_padding,
    input_channels,
    is_foldable_layer,
    scale_and_shift,
    scale_inputs,
)
from quaver.types import Array

# Judgement: factors further apart than this would leave small channels few steps of a common scale, if x is not int8
# already.
_SPREAD = 4.0
# A bound for hostile models: each node folded into a layer costs a new index of the graph, and real layers have few.
_MAX_FOLDS = 16
# Judgement: dividing a shift by less than this would inflate it, and with it the rounding error.
_SMALLEST = 1e-3
# Ops whose results are int8 if they run in int8: what follows them is quantized before it is scaled, in any case.
_WRITE_INT8 = ("Conv", "Add", "Mul", "Concat", "AveragePool", "GlobalAveragePool", "LeakyRelu", "Sigmoid")
_PASS_ON = ("Relu", "Clip", "MaxPool", "Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze")


def fold_into_next_layer(graph: Graph) -> int:
    """Drop Mul, Add, Sub, Div and BatchNormalization of constants before layers, and return how many went."""
    count, tied = 0, tied_weights(graph)
    for layer in list(graph.nodes):
        if not is_foldable_layer(graph, layer) or layer.input[1] in tied:  # the table has to stay the same constant
            continue
        for _ in range(_MAX_FOLDS):
            node = removable_producer(graph, layer.input[0])
            if node is None or not _fold_into_consumer(graph, layer, node):
                break
            count += 1
    return count


def _fold_into_consumer(graph: Graph, layer: NodeProto, node: NodeProto) -> bool:
    channels, rank = input_channels(graph, layer), graph.ranks.get(layer.input[0])
    source = next((name for name in node.input if name not in graph.constants), "")
    if rank is None or not source or graph.ranks.get(source) != rank:
        return False
    axis = channel_axis(layer)
    # BatchNormalization counts axes from the front: on a matrix its channels are the last axis.
    affine = scale_and_shift(graph, node, source, channels, rank, 1 if rank == 2 else axis)
    if affine is None:
        return False
    scale, shift = affine
    if np.any(shift != 0) and layer.op_type == "Conv" and has_padding(layer):
        return _fold_the_factor_before(graph, layer, node, source, shift)
    if not keeps_precision(graph, source, scale):
        return False
    if not scale_inputs(graph, layer, scale, shift, node.output[0]):
        return False
    remove_node(graph, node, layer)
    return True


def _fold_the_factor_before(graph: Graph, layer: NodeProto, node: NodeProto, source: str, shift: Array) -> bool:
    """Fold a factor before a shift that must stay: s x + b is s (x + b / s), so that one node for the shift is left."""
    product = removable_producer(graph, source, "Mul", "Div")
    inner = next((name for name in product.input if name not in graph.constants), "") if product is not None else ""
    rank = graph.ranks.get(source, 0)
    affine = None if product is None else scale_and_shift(graph, product, inner, len(shift), rank)
    if product is None or affine is None or node.op_type not in ("Add", "Sub") or graph.ranks.get(inner) != rank:
        return False
    scale = affine[0]
    slot = next(slot for slot, name in enumerate(node.input) if name in graph.constants)
    value = graph.constants[node.input[slot]]
    if (
        np.any(np.abs(scale) < _SMALLEST)
        or not keeps_precision(graph, inner, scale)
        or (node.op_type == "Sub" and slot == 0)
    ):
        return False
    same = bool(np.all(scale == scale[0]))
    divided = value / scale[0] if same else value / scale.reshape(1, -1, *[1] * (rank - 2))
    name = graph.free_name(f"{node.output[0]}.shift")
    graph.constants[name] = np.asarray(divided, np.float32)
    node.input[slot] = name
    scale_inputs(graph, layer, scale, np.zeros(len(shift)), node.output[0])
    remove_node(graph, product, layer)
    return True


def keeps_precision(graph: Graph, source: str, scale: Array) -> bool:
    """Return True if scaling the weights instead costs no precision: factors are alike, or x is int8 in any case."""
    sizes = np.abs(scale)
    if sizes.min() * _SPREAD >= sizes.max():
        return True
    while (node := producer(graph, source, *_PASS_ON)) is not None:
        source = node.input[0]
    return producer(graph, source, *_WRITE_INT8) is not None
