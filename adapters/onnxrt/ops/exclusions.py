"""Which tensors hold shares between 0 and 1, and which ops join them with something else.

Detectors put the scores of a box beside its corners: 0 to 1 beside 0 to 640. In 8 bits, with one scale for both, every
score is 0; and the error at the outputs hardly shows it, for the corners are so much larger.
"""

from __future__ import annotations

import numpy as np
from onnx import NodeProto, numpy_helper

from quaver.adapters.onnxrt.load.graph import Graph, attribute

_MAKE = {"HardSigmoid", "Sigmoid", "Softmax"}
_KEEP_SHARES = {
    "Cast", "Flatten", "Gather", "Identity", "MaxPool", "ReduceMax", "Reshape", "Slice", "Split", "Squeeze", "Tile",
    "Transpose", "Unsqueeze",
}  # fmt: skip
_OF_ALL = {"Concat", "Max", "Min", "Mul"}


def probabilities(graph: Graph) -> set[str]:
    """The tensors that hold nothing but numbers between 0 and 1, as far as the ops that write them tell."""
    found: set[str] = set()
    for node in graph.nodes:  # in the order they run in
        if (
            node.op_type in _MAKE
            or (node.op_type in _KEEP_SHARES and node.input[0] in found)
            or (node.op_type in _OF_ALL and all(name in found for name in node.input))
        ):
            found.update(name for name in node.output if name)
    return found


def mixes_probabilities(node: NodeProto, shares: set[str]) -> bool:
    """Whether a node puts such numbers beside others, in one tensor."""
    return node.op_type == "Concat" and 0 < len(shares.intersection(node.input)) < len(set(node.input))


# What is as large as this stands for infinity: masks hold -1e4, -65504, -1e9, -3.4e38.
MASK_MAGNITUDE = 1e4

# They hand on what they read, or add something to it; through anything else a sentinel does not come as it is.
_KEEP_SENTINELS = {
    "Add", "Cast", "CastLike", "Concat", "Div", "Expand", "Flatten", "Gather", "Identity", "Mul", "Neg", "Pad",
    "Reshape", "Slice", "Split", "Squeeze", "Sub", "Tile", "Transpose", "Trilu", "Unsqueeze", "Where",
}  # fmt: skip


def mask_value_tensors(graph: Graph) -> set[str]:
    """The tensors that may hold such a constant, wherever between it and a Softmax they stand."""
    held = {name for name, array in graph.constants.items() if _huge(array)}
    constants = frozenset(held)
    for node in graph.nodes:  # in the order they run in
        if node.op_type == "ConstantOfShape":
            value = attribute(node, "value")
            found = value is not None and _huge(numpy_helper.to_array(value.t))
        else:
            sources = node.input[:1] if node.op_type in ("Div", "Gather", "Pad") else node.input
            found = node.op_type in _KEEP_SENTINELS and any(name in held for name in sources)
        if found:
            held.update(name for name in node.output if name)
    return held - constants


def _huge(array: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> bool:
    return array.dtype.kind == "f" and array.size > 0 and bool(np.max(np.abs(array)) >= MASK_MAGNITUDE)
