"""Which node of a built graph belongs to which op, and how it runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from quaver.adapters.mxnet.look.quantized_graph import DEQUANTIZING, PREFIX, QUANTIZING
from quaver.adapters.mxnet.read.graph import Graph, Node


def is_quantized(node: Node) -> bool:
    """Whether a node computes in int8."""
    return node.operator.startswith("_contrib_quantized_") or node.attributes.get("quantized", "").lower() == "true"


def kernel_name(node: Node) -> str:
    """What runs, in MXNet's words, and in which type where the words do not say it."""
    return f"{node.operator} int8" if is_quantized(node) and "quantized" not in node.operator else node.operator


def owners(graph: Graph, belongs: Mapping[str, str]) -> dict[str, str]:
    """For each node of a built graph the op it belongs to; `belongs` tells that of nodes of the float graph.

    Quantizing a tensor belongs to the op that reads it, dequantizing to the op that wrote it.
    """
    found: dict[str, str] = {}
    for node in graph.in_order():
        plain = node.name.removeprefix(PREFIX) if is_quantized(node) else node.name
        if plain in belongs:
            found[node.name] = belongs[plain]
    for node in graph.in_order():
        if node.operator == QUANTIZING:
            owner = next((found[one.name] for one in graph.readers.get(node.index, ()) if one.name in found), None)
        elif node.operator == DEQUANTIZING:
            writer = graph.nodes.get(node.inputs[0][0])
            owner = found.get(writer.name) if writer is not None else None
        else:
            continue
        if owner is not None:
            found[node.name] = owner
    return found


def precisions(graph: Graph, ops: Iterable[str]) -> dict[str, str]:
    """How each op runs; one that is not found is left out."""
    found = {}
    for op in ops:
        if f"{PREFIX}{op}" in graph.by_name:
            found[op] = "int8" if is_quantized(graph.by_name[f"{PREFIX}{op}"]) else "fp32"
        elif op in graph.by_name:
            found[op] = "fp32"
    return found
