"""Constants that stand for minus infinity, as masks hold them, and how far they spread through a graph."""

from __future__ import annotations

import numpy as np
from onnx import numpy_helper

from quaver.adapters.onnxrt.read.graph import Graph, attribute

# What is as large as this stands for infinity: masks hold -1e4, -65504, -1e9, -3.4e38.
STANDS_FOR_INFINITY = 1e4

# They hand on what they read, or add something to it; through anything else a sentinel does not come as it is.
_HAND_ON = {
    "Add", "Cast", "CastLike", "Concat", "Div", "Expand", "Flatten", "Gather", "Identity", "Mul", "Neg", "Pad",
    "Reshape", "Slice", "Split", "Squeeze", "Sub", "Tile", "Transpose", "Trilu", "Unsqueeze", "Where",
}  # fmt: skip


def sentinel_tensors(graph: Graph) -> set[str]:
    """The tensors that may hold such a constant, wherever between it and a Softmax they stand."""
    held = {name for name, array in graph.constants.items() if _huge(array)}
    constants = frozenset(held)
    for node in graph.nodes:  # in the order they run in
        if node.op_type == "ConstantOfShape":
            value = attribute(node, "value")
            found = value is not None and _huge(numpy_helper.to_array(value.t))
        else:
            sources = node.input[:1] if node.op_type in ("Div", "Gather", "Pad") else node.input
            found = node.op_type in _HAND_ON and any(name in held for name in sources)
        if found:
            held.update(name for name in node.output if name)
    return held - constants


def _huge(array: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> bool:
    return array.dtype.kind == "f" and array.size > 0 and bool(np.max(np.abs(array)) >= STANDS_FOR_INFINITY)
