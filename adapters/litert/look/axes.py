"""Where channels lie, and what becomes of a tensor on its way from one op to another."""

from __future__ import annotations

from quaver.adapters.litert.build.quantizing import Builder
from quaver.adapters.litert.read.graph import Graph
from quaver.adapters.litert.read.units import Unit


def channel_axis(graph: Graph, tensor: int) -> int | None:
    """Which axis of a tensor holds channels: the last one, as everywhere in TensorFlow."""
    return -1 if graph.rank(tensor) > 1 else None


def weight_axes(graph: Graph, unit: Unit) -> tuple[int | None, int | None]:
    """Which axes of an op's weight hold output channels and input channels."""
    kind = unit.operator.kind
    if kind in ("CONV_2D", "TRANSPOSE_CONV"):
        return 0, 3
    if kind == "DEPTHWISE_CONV_2D":
        return 3, 0
    if kind == "FULLY_CONNECTED":
        return 0, 1
    assert unit.weight is not None
    last = graph.rank(unit.weight) - 1
    turned = graph.main.operators[unit.operator.index].builtinOptions.adjY
    return (last - 1, last) if turned else (last, last - 1)


def why_one_scale(unit: Unit) -> str:
    """Why an op's weight can have only one scale; empty if it can have more, or there is none."""
    if unit.weight is None or any(choice.granularity == "per_channel" for choice in unit.op.choices):
        return ""
    return f"LiteRT's int8 {unit.operator.kind} takes one scale for its constant"


def way(builder: Builder, tensor: int) -> tuple[int, tuple[str, ...]]:
    """The tensor that was moved about into this one, and the kinds of the operators that did it, in order."""
    graph, kinds = builder.graph, list[str]()
    writer = graph.writers.get(tensor, -1)
    while writer in builder.followers:
        kinds.insert(0, graph.operators[writer].kind)
        tensor = builder.followers[writer]
        writer = graph.writers.get(tensor, -1)
    return tensor, tuple(kinds)


def upstream(builder: Builder, unit: Unit) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The ops whose outputs reach a unit, directly or through operators that are none, and the kinds of these."""
    graph = builder.graph
    units = {other.operator.index: other.op.name for other in builder.units}
    ops: dict[str, None] = {}
    kinds: dict[str, None] = {}
    seen = {unit.operator.index}
    waiting = list(unit.operator.inputs)
    while waiting:
        index = graph.writers.get(waiting.pop())
        if index is None or index in seen:
            continue
        seen.add(index)
        if index in units:
            ops[units[index]] = None
        else:
            kinds[graph.operators[index].kind] = None
            waiting.extend(graph.operators[index].inputs)
    return tuple(ops), tuple(kinds)
