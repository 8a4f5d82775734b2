"""Weights in float16 or float64, which no int8 kernel takes the place of."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np
from onnx import TensorProto

from quaver.adapters.onnxrt.read.graph import Graph

log = logging.getLogger(__name__)

_WEIGHTY = ("Conv", "ConvTranspose", "Gemm", "MatMul")


def some(names: Sequence[str], most: int = 8) -> str:
    """The first few of these names."""
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")


def of_other_floats(graph: Graph) -> str:
    """A sentence for a model in which nothing can be int8 because its weights are no float32; empty if they are."""
    for kind in (np.float16, np.float64):
        names = [repr(name) for name, array in graph.constants.items() if array.dtype == kind]
        if names:
            return f". Its weights are {np.dtype(kind)}: give the float32 model ({some(names, 4)})"
    return ""


def warn_of_doubles(graph: Graph) -> None:
    """Name the ops that stay as they are because they compute in float64."""
    left = [
        node
        for node in graph.nodes
        if node.op_type in _WEIGHTY and any(graph.types.get(name) == TensorProto.DOUBLE for name in node.input)
    ]
    if left:
        weights = dict.fromkeys(repr(name) for node in left for name in node.input if name in graph.constants)
        log.warning(
            "%d op(s) compute in float64 and are left out: %s. Convert their weights to float32 (%s)",
            len(left),
            some([repr(node.name) for node in left], 4),
            some(list(weights), 4) or "there are none",
        )
