"""Whether the parts of a model are there at all, so that whoever reads them later need not ask."""

from __future__ import annotations

import functools

import onnx
from onnx import ModelProto, NodeProto, TensorProto

from quaver.errors import ModelError

_STANDARD = ("", "ai.onnx")


def check_structure(model: ModelProto) -> None:
    """Refuse nodes that lack inputs, outputs or a value, and inputs of unknown types, by name."""
    opset = next((entry.version for entry in model.opset_import if entry.domain in _STANDARD), 0)
    for index, node in enumerate(model.graph.node):
        _check_node(node, index, opset)
    for value in model.graph.input:
        kind = value.type.tensor_type.elem_type
        if kind and kind not in TensorProto.DataType.values():
            raise ModelError(f"input {value.name!r} is of the unknown element type {kind}")


def _check_node(node: NodeProto, index: int, opset: int) -> None:
    called = f"node {node.name or index!r} ({node.op_type or 'of no type'})"
    if not node.op_type:
        raise ModelError(f"{called} has no operator")
    if not any(node.output):
        raise ModelError(f"{called} has no output")
    if node.domain not in _STANDARD:
        return
    if node.op_type == "Constant" and len(node.attribute) != 1:
        raise ModelError(f"{called} must have one value, not {len(node.attribute)}")
    needed = _needed(node.op_type, opset)
    given = len(node.input), len(node.output)
    for what, have, (least, most) in zip(("input", "output"), given, needed, strict=True):
        if not least <= have <= most:
            raise ModelError(f"{called} has {have} {what}(s); the operator takes {least} to {most}")


@functools.cache
def _needed(kind: str, opset: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """How many inputs and outputs a standard operator has, at least and at most; any number if it is not known."""
    try:
        schema = onnx.defs.get_schema(kind, opset, "")
    except Exception:  # of a newer opset than the package knows, or no operator at all: the runtime says so
        return (0, 2**31), (1, 2**31)
    return (schema.min_input, schema.max_input), (max(schema.min_output, 1), schema.max_output)
