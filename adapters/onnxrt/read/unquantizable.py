"""The nodes of a graph that compute and are part of no op: GRU, Softmax, If and Loop, those of other domains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from onnx import NodeProto, TensorProto

from quaver.adapters.onnxrt.read.graph import Graph, subgraphs
from quaver.adapters.onnxrt.read.movement import moves
from quaver.adapters.onnxrt.read.units import Unit
from quaver.unquantizable import Unquantizable

# They look at a float tensor, and compute nothing of its values.
_LOOK = {"Cast", "CastLike", "Shape", "Size"}
_FLOATS = {TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE}


def unquantizable_nodes(graph: Graph, units: Iterable[Unit]) -> dict[int, str]:
    """The kind of each such node, by its index."""
    taken = {index for unit in units for index in unit.nodes}
    return {
        index: f"{node.domain}:{node.op_type}" if _foreign(node) else node.op_type
        for index, node in enumerate(graph.nodes)
        if index not in taken and _computes(graph, node)
    }


def unquantizable(graph: Graph, units: Iterable[Unit]) -> list[Unquantizable]:
    """How many there are of each kind, in graph order."""
    counts = Counter(unquantizable_nodes(graph, units).values())
    return [Unquantizable(kind, count) for kind, count in counts.items()]


def _computes(graph: Graph, node: NodeProto) -> bool:
    if _foreign(node) or any(True for _ in subgraphs(node)):
        return True
    if node.op_type in _LOOK or moves(graph, node):
        return False
    return any(name and name not in graph.constants and _may_be_float(graph, name) for name in node.input)


def _may_be_float(graph: Graph, name: str) -> bool:
    """Behind a node that type inference does not know, anything may come."""
    return name not in graph.types or graph.types[name] in _FLOATS


def _foreign(node: NodeProto) -> bool:
    return node.domain not in ("", "ai.onnx")
