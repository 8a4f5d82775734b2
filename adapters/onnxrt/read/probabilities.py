"""Which tensors hold shares between 0 and 1, and which ops join them with something else.

Detectors put the scores of a box beside its corners: 0 to 1 beside 0 to 640. In 8 bits, with one scale for both, every
score is 0; and the error at the outputs hardly shows it, for the corners are so much larger.
"""

from __future__ import annotations

from onnx import NodeProto

from quaver.adapters.onnxrt.read.graph import Graph

_MAKE = {"HardSigmoid", "Sigmoid", "Softmax"}
_HAND_ON = {
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
            or (node.op_type in _HAND_ON and node.input[0] in found)
            or (node.op_type in _OF_ALL and all(name in found for name in node.input))
        ):
            found.update(name for name in node.output if name)
    return found


def joins_unlike(node: NodeProto, shares: set[str]) -> bool:
    """Whether a node puts such numbers beside others, in one tensor."""
    return node.op_type == "Concat" and 0 < len(shares.intersection(node.input)) < len(set(node.input))
