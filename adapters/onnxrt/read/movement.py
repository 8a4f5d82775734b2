"""Ops that only move values about: what they write has the scale of what they read."""

from __future__ import annotations

from onnx import NodeProto, TensorProto

from quaver.adapters.onnxrt.read.graph import Graph, attribute

# They take the scale of what they move, and run in int8 when both sides do.
MOVEMENT = {
    "DepthToSpace", "Dropout", "Expand", "Flatten", "Gather", "Identity", "MaxPool", "Reshape", "Slice", "Split",
    "Squeeze", "Tile", "Transpose", "Unsqueeze",
}  # fmt: skip


def families(graph: Graph) -> dict[str, str]:
    """For each tensor that is moved about, the tensor it was before: they share one scale."""
    roots: dict[str, str] = {}
    for node in graph.nodes:
        if moves(graph, node):
            source = node.input[0]
            for name in node.output:
                if name:
                    roots[name] = roots.get(source, source)
    return roots


def moves(graph: Graph, node: NodeProto) -> bool:
    """Whether a node only moves float values of its first input about."""
    if node.domain not in ("", "ai.onnx") or not node.input or graph.types.get(node.input[0]) != TensorProto.FLOAT:
        return False
    if node.op_type == "Resize":
        mode = attribute(node, "mode")
        return mode is None or mode.s == b"nearest"
    if node.op_type in ("MaxPool", "Dropout") and len([name for name in node.output if name]) > 1:
        return False
    return node.op_type in MOVEMENT and node.input[0] not in graph.constants


def shrinks_by_cubes(graph: Graph, node: NodeProto) -> bool:
    """Return whether a node is a cubic Resize that makes an axis shorter, or may do so."""
    mode = attribute(node, "mode")
    if node.domain not in ("", "ai.onnx") or node.op_type != "Resize" or mode is None or mode.s != b"cubic":
        return False
    scales = graph.constants.get(node.input[2]) if len(node.input) > 2 else None
    return scales is None or scales.size == 0 or bool((scales < 1).any())
