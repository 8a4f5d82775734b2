"""Channel axes: where channels lie, and what happens to a tensor between two ops."""

from __future__ import annotations

from collections.abc import Mapping

from quaver.adapters.onnxrt.load.graph import Graph, integer
from quaver.adapters.onnxrt.ops.unit import Unit

_CONVOLUTIONS = ("Conv", "ConvTranspose", "AveragePool", "GlobalAveragePool")
_PRODUCTS = ("Gemm", "MatMul")


def movement_kinds(graph: Graph, name: str, root: str) -> list[str]:
    """Return the kinds of the nodes that moved a tensor since it was `root`."""
    kinds: list[str] = []
    while name != root:
        node = graph.nodes[graph.producers[name]]
        kinds.insert(0, node.op_type)
        name = node.input[0]
    return kinds


def upstream(graph: Graph, unit: Unit, unit_of: Mapping[int, Unit]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the ops whose outputs reach a unit, directly or through nodes that are no ops, and the kinds of these
    nodes.
    """
    ops: dict[str, None] = {}
    kinds: dict[str, None] = {}
    visited: set[int] = set(unit.nodes)
    waiting = [name for index in unit.nodes for name in graph.nodes[index].input]
    while waiting:
        index = graph.producers.get(waiting.pop())
        if index is None or index in visited:
            continue
        visited.add(index)
        owner = unit_of.get(index)
        if owner is not None:
            ops[owner.op.name] = None
        else:
            kinds[graph.nodes[index].op_type] = None
            waiting.extend(graph.nodes[index].input)
    return tuple(ops), tuple(kinds)


def channel_axis(graph: Graph, unit: Unit, name: str) -> int | None:
    """Return the channel axis of a tensor that an op reads or writes, judged by the kind of the op."""
    kind = graph.nodes[unit.anchor].op_type
    if kind in _CONVOLUTIONS:
        return 1
    if kind in _PRODUCTS:
        return -1
    rank = graph.ranks.get(name)
    return None if rank is None or rank < 2 else 1 if rank > 3 else -1


def weight_axes(graph: Graph, unit: Unit) -> tuple[int | None, int | None]:
    """Return the axes of an op's weight that hold output channels and input channels."""
    node = graph.nodes[unit.anchor]
    assert unit.weight is not None
    rank = graph.constants[unit.weight].ndim
    if node.op_type == "Conv":
        return 0, 1
    if node.op_type == "ConvTranspose":
        return (1, 0) if integer(node, "group", 1) == 1 else (None, 0)
    if node.op_type == "Gemm" and integer(node, "transB", 0):
        return 0, 1
    if unit.is_embedding:
        rows = integer(node, "axis", 0) % rank
        return rows, rank - 1 if rows < rank - 1 else rank - 2
    return rank - 1, rank - 2


def why_one_scale(graph: Graph, unit: Unit) -> str:
    """Return why an op's weight can have only one scale; empty if it can have more, or there is none."""
    if unit.weight is None or unit.axis is not None:
        return ""
    kind = graph.nodes[unit.anchor].op_type
    if unit.is_embedding:
        return "the rows of the table are so short that a scale for each would take as much memory as the row"
    if kind == "ConvTranspose":
        return "ONNX Runtime has no int8 kernel for ConvTranspose, and its 8-bit weight takes one scale"
    return f"ONNX Runtime's int8 {kind} takes one scale for a weight of {graph.constants[unit.weight].ndim} axes"
