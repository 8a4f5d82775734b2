"""Whether a piece of a graph is what it looks like: its numbers, and that nobody else reads from within."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from onnx import NodeProto

from quaver.adapters.onnxrt.read.graph import Graph, attribute, integer
from quaver.adapters.onnxrt.read.rewrites.editing import maker

# Exporters write constants with six digits and more.
_DIGITS = 2e-5


def near(found: float | Mapping[int, float] | None, wanted: float | Mapping[int, float]) -> bool:
    """Whether numbers, or all coefficients of a polynomial, agree to about five digits."""
    if isinstance(wanted, Mapping):
        return (
            isinstance(found, Mapping)
            and set(found) == set(wanted)
            and all(near(found[power], value) for power, value in wanted.items())
        )
    return isinstance(found, float) and math.isclose(found, wanted, rel_tol=_DIGITS)


def closed(graph: Graph, nodes: Sequence[NodeProto]) -> list[NodeProto] | None:
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
    node = maker(graph, name, "ReduceMean")
    if node is None or not integer(node, "keepdims", 1) or (source is not None and node.input[0] != source):
        return None
    entry = attribute(node, "axes")
    given = node.input[1] if len(node.input) > 1 else ""
    axes = list(entry.ints) if entry is not None else [int(axis) for axis in graph.constants.get(given, [])]
    return node if axes in ([-1], [graph.ranks.get(node.input[0], 0) - 1]) else None
