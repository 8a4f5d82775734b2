"""Constants that are added to an activation or multiplied with it, and can be so in 8 bits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import NodeProto

from quaver.adapters.onnxrt.load.graph import Graph
from quaver.adapters.onnxrt.ops.passthrough import bounds

ELEMENTWISE = {"Add", "Mul"}
# One step of 8 bits is this part of what activations usually are; factors of channels should be no coarser.
_LIKE_ACTIVATIONS = 1 / 16


def operand_of(graph: Graph, node: NodeProto, activations: Sequence[str]) -> str | None:
    """The single number that is added to an activation, or multiplied with it; or the slopes of a PRelu."""
    others = [str(name) for name in node.input if name in graph.constants]
    if node.op_type not in ELEMENTWISE or len(activations) != 1:
        return None
    if graph.constants[others[0]].size != 1 and not _are_slopes(graph, node, activations[0], others[0]):
        return None
    return others[0] if graph.constants[others[0]].ndim <= graph.ranks.get(activations[0], 0) else None


def _are_slopes(graph: Graph, node: NodeProto, source: str, constant: str) -> bool:
    """Whether what lies below zero is scaled, and 8 bits hold the factors about as well as activations."""
    producer, factors = graph.producers.get(source), graph.constants[constant]
    if node.op_type != "Mul" or producer is None or graph.nodes[producer].op_type != "Clip":
        return False
    if bounds(graph, graph.nodes[producer]) != (None, 0.0) or sum(size > 1 for size in factors.shape) != 1:
        return False
    low, high = min(float(factors.min()), 0.0), max(float(factors.max()), 0.0)
    return (high - low) / 255 < _LIKE_ACTIVATIONS * float(np.sqrt(np.square(factors, dtype=np.float64).mean()))
