"""The module of the user's code that a node comes from, where the exporter left it in the node's metadata."""

from __future__ import annotations

import ast

from onnx import NodeProto

# What torch's exporter writes for each node: a list of module paths, the node's own name last.
_SCOPES = "pkg.torch.onnx.name_scopes"
_LONGEST = 4096


def module_of(node: NodeProto) -> str:
    """The innermost module, such as "layer1.0.conv1"; empty if nothing is said, or nothing that can be read."""
    said = next((entry.value for entry in node.metadata_props if entry.key == _SCOPES), "")
    if not said or len(said) > _LONGEST:
        return ""
    try:
        scopes = ast.literal_eval(said)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return ""
    if not isinstance(scopes, list) or len(scopes) < 2 or not isinstance(scopes[-2], str):
        return ""
    return scopes[-2]
