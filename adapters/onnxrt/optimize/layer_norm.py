"""LayerNormalization: the nine or so nodes that exporters write, recognised as one operator.

The runtime recognises most chains in a float model, but not behind an int8 op, where each reader of its result gets a
DequantizeLinear of its own; and a square written as a product would be offered as an int8 op.
"""

from __future__ import annotations

import numpy as np
from onnx import NodeProto, helper

from quaver.adapters.onnxrt.load.graph import Graph
from quaver.adapters.onnxrt.optimize.graph_edit import (
    is_float32,
    last_axis_mean,
    number,
    operand_and_number,
    producer,
    removable_chain,
    replace_nodes,
)
from quaver.types import Array

OPSET = 17


def recognise_layer_norm(graph: Graph) -> int:
    """Replace each chain that computes a LayerNormalization, and return how many there were."""
    count = 0
    for division in [node for node in graph.nodes if node.op_type == "Div" and not node.domain]:
        match = _layer_norm(graph, division)
        if match is None:
            continue
        x, epsilon, scale, shift, chain = match
        last = chain[-1]
        arrays = [np.asarray(array, np.float32).reshape(-1) for array in (scale, shift) if array is not None]
        names = [graph.free_name(f"{last.output[0]}.{part}") for part in ("scale", "shift")][: len(arrays)]
        graph.constants.update(zip(names, arrays, strict=True))
        norm = helper.make_node(
            "LayerNormalization", [x, *names], [last.output[0]], name=last.name, axis=-1, epsilon=epsilon
        )
        replace_nodes(graph, chain, [norm])
        count += 1
    return count


def has_layer_norm(graph: Graph) -> bool:
    """Return True if a chain computes a LayerNormalization."""
    return any(node.op_type == "Div" and _layer_norm(graph, node) is not None for node in graph.nodes)


def _layer_norm(graph: Graph, division: NodeProto) -> tuple[str, float, Array, Array | None, list[NodeProto]] | None:
    """Return x, epsilon, scale, shift and all nodes of the normalization that divides here."""
    centred, deviation = division.input
    difference, root = producer(graph, centred, "Sub"), producer(graph, deviation, "Sqrt")
    if difference is None or root is None or not is_float32(graph, difference.input[0]):
        return None
    x = difference.input[0]
    mean, plus = last_axis_mean(graph, difference.input[1], x), producer(graph, root.input[0], "Add")
    stabilised = None if plus is None else operand_and_number(graph, plus)
    if mean is None or plus is None or stabilised is None:
        return None
    variance = last_axis_mean(graph, stabilised[0])
    square = None if variance is None else producer(graph, variance.input[0], "Pow", "Mul")
    if variance is None or square is None or not _is_square(graph, square, centred):
        return None
    nodes = [mean, difference, square, variance, plus, root, division]
    scaling = graph.only_reader(division.output[0])
    scale = None if scaling is None else _vector(graph, scaling, "Mul", division.output[0])
    if scaling is None or scale is None:
        return None
    nodes.append(scaling)
    shifting = graph.only_reader(scaling.output[0])
    shift = None if shifting is None else _vector(graph, shifting, "Add", scaling.output[0], scale.size)
    if shifting is not None and shift is not None:
        nodes.append(shifting)
    chain = removable_chain(graph, nodes)
    return None if chain is None else (x, stabilised[1], scale, shift, chain)


def _is_square(graph: Graph, node: NodeProto, of: str) -> bool:
    if node.op_type == "Mul":
        return list(node.input) == [of, of]
    return node.input[0] == of and number(graph, node.input[1], of) == 2.0


def _vector(graph: Graph, node: NodeProto, kind: str, source: str, size: int | None = None) -> Array | None:
    """Return the constant along the last axis that a node combines with `source`."""
    if node.op_type != kind or node.domain or list(node.input).count(source) != 1:
        return None
    value = graph.constants.get(next(name for name in node.input if name != source))
    if value is None or value.dtype != np.float32 or not 1 <= value.ndim <= graph.ranks.get(source, 0):
        return None
    return value if value.size == value.shape[-1] and value.size == (size or value.size) else None
