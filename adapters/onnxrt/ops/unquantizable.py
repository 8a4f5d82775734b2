"""Unquantizable nodes: those that compute and are part of no op, such as GRU, Softmax, If and Loop."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from onnx import NodeProto, TensorProto

from quaver.adapters.onnxrt.load.graph import Graph, subgraphs
from quaver.adapters.onnxrt.ops.passthrough import is_movement
from quaver.adapters.onnxrt.ops.unit import Unit
from quaver.unquantizable import Unquantizable

# They read a float tensor without computing anything from its values.
_LOOK = {"Cast", "CastLike", "Shape", "Size"}
_FLOATS = {TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE}


def unquantizable_nodes(graph: Graph, units: Iterable[Unit]) -> dict[int, str]:
    """Return the kind of each such node, by its index."""
    unit_nodes = {index for unit in units for index in unit.nodes}
    return {
        index: f"{node.domain}:{node.op_type}" if _foreign(node) else node.op_type
        for index, node in enumerate(graph.nodes)
        if index not in unit_nodes and _computes(graph, node)
    }


def unquantizable(graph: Graph, units: Iterable[Unit]) -> list[Unquantizable]:
    """Count the unquantizable nodes of each kind, in graph order."""
    counts = Counter(unquantizable_nodes(graph, units).values())
    return [Unquantizable(kind, count) for kind, count in counts.items()]


def _computes(graph: Graph, node: NodeProto) -> bool:
    if _foreign(node) or any(True for _ in subgraphs(node)):
        return True
    if node.op_type in _LOOK or is_movement(graph, node):
        return False
    return any(name and name not in graph.constants and _may_be_float(graph, name) for name in node.input)


def _may_be_float(graph: Graph, name: str) -> bool:
    """Return True unless a tensor is known not to be float: type inference may not know the node before it."""
    return name not in graph.types or graph.types[name] in _FLOATS


def _foreign(node: NodeProto) -> bool:
    return node.domain not in ("", "ai.onnx")


log = logging.getLogger(__name__)

_WEIGHTY = ("Conv", "ConvTranspose", "Gemm", "MatMul")


def some(names: Sequence[str], most: int = 8) -> str:
    """Join the first few of these names."""
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")


def of_other_floats(graph: Graph) -> str:
    """Return a sentence that names weights which are not float32; empty if all are."""
    for kind in (np.float16, np.float64):
        names = [repr(name) for name, array in graph.constants.items() if array.dtype == kind]
        if names:
            return f". Its weights are {np.dtype(kind)}: give the float32 model ({some(names, 4)})"
    return ""


def warn_of_doubles(graph: Graph) -> None:
    """Warn of ops that stay unchanged because they compute in float64."""
    doubles = [
        node
        for node in graph.nodes
        if node.op_type in _WEIGHTY and any(graph.types.get(name) == TensorProto.DOUBLE for name in node.input)
    ]
    if doubles:
        weights = dict.fromkeys(repr(name) for node in doubles for name in node.input if name in graph.constants)
        log.warning(
            "%d op(s) compute in float64 and are left out: %s. Convert their weights to float32 (%s)",
            len(doubles),
            some([repr(node.name) for node in doubles], 4),
            some(list(weights), 4) or "there are none",
        )
