"""The few moves that every rewrite of a graph is made of."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from onnx import NodeProto, TensorProto

from quaver.adapters.onnxrt.load.graph import Graph, attribute, integer


def producer(graph: Graph, name: str, *kinds: str) -> NodeProto | None:
    """The node that makes a tensor, if it is a standard one of these kinds (any, if none is named)."""
    index = graph.producers.get(name)
    if index is None:
        return None
    node = graph.nodes[index]
    return node if node.domain in ("", "ai.onnx") and (not kinds or node.op_type in kinds) else None


def removable_producer(graph: Graph, name: str, *kinds: str) -> NodeProto | None:
    """The same, if one node alone reads the tensor, so that it may go."""
    return producer(graph, name, *kinds) if graph.only_reader(name) is not None else None


def number(graph: Graph, name: str, beside: str) -> float | None:
    """A float32 constant of one number, which gives the tensor `beside` no axis more."""
    value = graph.constants.get(name)
    if value is None or value.size != 1 or value.dtype != np.float32 or value.ndim > graph.ranks.get(beside, 0):
        return None
    return float(value.reshape(()))


def operand_and_number(graph: Graph, node: NodeProto, ordered: bool = False) -> tuple[str, float] | None:
    """What a node of two operands takes besides a number, and the number; with `ordered` that is on the right."""
    if len(node.input) != 2:
        return None
    left, right = node.input
    for source, constant in ((left, right), (right, left))[: 1 if ordered else 2]:
        value = number(graph, constant, source)
        if value is not None and source not in graph.constants:
            return source, value
    return None


def scaling_factor(graph: Graph, node: NodeProto) -> tuple[str, float] | None:
    """What a Mul or Div by one number takes, and what it is multiplied by."""
    if node.domain not in ("", "ai.onnx") or node.op_type not in ("Mul", "Div"):
        return None
    found = operand_and_number(graph, node, ordered=node.op_type == "Div")
    if found is None or node.op_type == "Mul":
        return found
    return None if found[1] == 0 else (found[0], 1 / found[1])


def is_float(graph: Graph, name: str) -> bool:
    """Whether a tensor is known to be of float32."""
    return graph.types.get(name) == TensorProto.FLOAT


def replace_nodes(graph: Graph, old: Sequence[NodeProto], new: Sequence[NodeProto]) -> None:
    """Put nodes in the place of the last of some others, which must be what writes the result. The first new one
    takes note of all names that go.
    """
    gone = {id(node) for node in old}
    at = max(i for i, node in enumerate(graph.nodes) if id(node) in gone)
    kept = [node for node in graph.nodes[:at] if id(node) not in gone]
    graph.nodes = [*kept, *new, *graph.nodes[at + 1 :]]
    names = {node.name for node in new}
    graph.merge(new[-1].name, *(node.name for node in old if node.name not in names))
    graph.index()


def remove_node(graph: Graph, node: NodeProto, into: NodeProto) -> None:
    """Take out a node that another layer has taken over; who read its result reads what it read."""
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


def is_close(found: float | Mapping[int, float] | None, wanted: float | Mapping[int, float]) -> bool:
    """Whether numbers, or all coefficients of a polynomial, agree to about five digits."""
    if isinstance(wanted, Mapping):
        return (
            isinstance(found, Mapping)
            and set(found) == set(wanted)
            and all(is_close(found[power], value) for power, value in wanted.items())
        )
    return isinstance(found, float) and math.isclose(found, wanted, rel_tol=_DIGITS)


def removable_chain(graph: Graph, nodes: Sequence[NodeProto]) -> list[NodeProto] | None:
    """The nodes in the order of the graph, if only the last one's result is read by others."""
    ids = {id(node) for node in nodes}
    ordered = [node for node in graph.nodes if id(node) in ids]
    for node in ordered[:-1]:
        for name in node.output:
            readers = graph.consumers.get(name, [])
            if name in graph.pinned or any(id(graph.nodes[index]) not in ids for index in readers):
                return None
    return ordered


def last_axis_mean(graph: Graph, name: str, source: str | None = None) -> NodeProto | None:
    """The ReduceMean over the last axis, which stays as one of length 1, that makes a tensor (of `source`)."""
    node = producer(graph, name, "ReduceMean")
    if node is None or not integer(node, "keepdims", 1) or (source is not None and node.input[0] != source):
        return None
    entry = attribute(node, "axes")
    given = node.input[1] if len(node.input) > 1 else ""
    axes = list(entry.ints) if entry is not None else [int(axis) for axis in graph.constants.get(given, [])]
    return node if axes in ([-1], [graph.ranks.get(node.input[0], 0) - 1]) else None
