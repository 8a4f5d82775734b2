"""Graph edits: the few operations that every rewrite is made of."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from onnx import NodeProto, TensorProto

from quaver.adapters.onnxrt.load.graph import Graph, attribute, integer
from quaver.adapters.onnxrt.load.padding import keep_padding_before_pools


def producer(graph: Graph, name: str, *kinds: str) -> NodeProto | None:
    """Return the node that writes a tensor, if it is a standard one of these kinds (any, if none is named)."""
    index = graph.producers.get(name)
    if index is None:
        return None
    node = graph.nodes[index]
    return node if node.domain in ("", "ai.onnx") and (not kinds or node.op_type in kinds) else None


def removable_producer(graph: Graph, name: str, *kinds: str) -> NodeProto | None:
    """Return the node that writes a tensor, if only one node reads the tensor, so that both can be joined."""
    return producer(graph, name, *kinds) if graph.only_reader(name) is not None else None


def number(graph: Graph, name: str, beside: str) -> float | None:
    """Return a float32 constant of one number, if it adds no axis to the tensor `beside`."""
    value = graph.constants.get(name)
    if value is None or value.size != 1 or value.dtype != np.float32 or value.ndim > graph.ranks.get(beside, 0):
        return None
    return float(value.reshape(()))


def operand_and_number(graph: Graph, node: NodeProto, ordered: bool = False) -> tuple[str, float] | None:
    """Return the other operand and the number, for a node that combines a tensor with one number.

    With `ordered` the number must be on the right.
    """
    if len(node.input) != 2:
        return None
    left, right = node.input
    for source, constant in ((left, right), (right, left))[: 1 if ordered else 2]:
        value = number(graph, constant, source)
        if value is not None and source not in graph.constants:
            return source, value
    return None


def scaling_factor(graph: Graph, node: NodeProto) -> tuple[str, float] | None:
    """Return what a Mul or Div by one number reads, and the factor."""
    if node.domain not in ("", "ai.onnx") or node.op_type not in ("Mul", "Div"):
        return None
    operands = operand_and_number(graph, node, ordered=node.op_type == "Div")
    if operands is None or node.op_type == "Mul":
        return operands
    return None if operands[1] == 0 else (operands[0], 1 / operands[1])


def is_float32(graph: Graph, name: str) -> bool:
    """Return True if a tensor is known to be float32."""
    return graph.types.get(name) == TensorProto.FLOAT


def replace_nodes(graph: Graph, old: Sequence[NodeProto], new: Sequence[NodeProto]) -> None:
    """Put new nodes in place of the last of some others, which writes the result.

    The last new node stands for the names of all nodes that go.
    """
    gone = {id(node) for node in old}
    at = max(i for i, node in enumerate(graph.nodes) if id(node) in gone)
    before = [node for node in graph.nodes[:at] if id(node) not in gone]
    graph.nodes = [*before, *new, *graph.nodes[at + 1 :]]
    names = {node.name for node in new}
    graph.merge(new[-1].name, *(node.name for node in old if node.name not in names))
    graph.index()


def remove_node(graph: Graph, node: NodeProto, into: NodeProto) -> None:
    """Remove a node that another layer has taken over. Readers of its result read what it read."""
    result, source = node.output[0], node.input[0] if node.input[0] not in graph.constants else node.input[1]
    for index in graph.consumers.get(result, []):
        reader = graph.nodes[index]
        for slot, name in enumerate(reader.input):
            if name == result:
                reader.input[slot] = source
    graph.nodes = [other for other in graph.nodes if other is not node]
    graph.merge(into.name, node.name)
    graph.index()


# Exporters write constants with six digits and more.
_DIGITS = 2e-5


def is_close(actual: float | Mapping[int, float] | None, expected: float | Mapping[int, float]) -> bool:
    """Return True if two numbers, or all coefficients of two polynomials, agree to about five digits."""
    if isinstance(expected, Mapping):
        return (
            isinstance(actual, Mapping)
            and set(actual) == set(expected)
            and all(is_close(actual[power], value) for power, value in expected.items())
        )
    return isinstance(actual, float) and math.isclose(actual, expected, rel_tol=_DIGITS)


def removable_chain(graph: Graph, nodes: Sequence[NodeProto]) -> list[NodeProto] | None:
    """Return the nodes in graph order, if nothing else reads what the nodes before the last one write."""
    ids = {id(node) for node in nodes}
    ordered = [node for node in graph.nodes if id(node) in ids]
    for node in ordered[:-1]:
        for name in node.output:
            readers = graph.consumers.get(name, [])
            if name in graph.pinned or any(id(graph.nodes[index]) not in ids for index in readers):
                return None
    return ordered


def last_axis_mean(graph: Graph, name: str, source: str | None = None) -> NodeProto | None:
    """Return the ReduceMean over the last axis, with the axis kept, that writes a tensor (from `source`)."""
    node = producer(graph, name, "ReduceMean")
    if node is None or not integer(node, "keepdims", 1) or (source is not None and node.input[0] != source):
        return None
    entry = attribute(node, "axes")
    axes_name = node.input[1] if len(node.input) > 1 else ""
    axes = list(entry.ints) if entry is not None else [int(axis) for axis in graph.constants.get(axes_name, [])]
    return node if axes in ([-1], [graph.ranks.get(node.input[0], 0) - 1]) else None


def keep_loadable(graph: Graph) -> None:
    """Prevent two optimizations of the runtime that fail where a rewrite has removed what stood between two ops.

    One makes a pooling op of a Pad and the pooling op behind it. The other joins Reshapes, and names the new shape
    after the node: if it joined some offline and can join more now, two shapes would have the same name.
    """
    keep_padding_before_pools(graph)
    for node in graph.nodes:
        if node.op_type == "Reshape" and node.input[1].endswith("_new_shape") and node.input[1] in graph.constants:
            name = graph.free_name(f"{node.output[0]}.shape")
            graph.constants[name] = graph.constants[node.input[1]]
            node.input[1] = name
    graph.index()
