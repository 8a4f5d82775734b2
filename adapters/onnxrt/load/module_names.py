"""Names of nodes that say which module they belong to, where the exporter wrote that beside them.

PyTorch's newer exporter calls nodes `node_conv2d_4` and writes the path of the module into their metadata. Such a node
is called `blocks.0.conv/node_conv2d_4` here.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from onnx import NodeProto

# A list of module paths, from the whole model to the node itself, whose own name is last.
SCOPES = "pkg.torch.onnx.name_scopes"
# What runs of earlier versions leave out: they know nodes by the names in the file.
MODULE_NAMES = "names with modules"
# What the newer exporter calls nodes: without a module in front these names tell nothing.
_NODE = "node_"
# Longer metadata is not read: a list of module paths is far shorter.
_MAX_SCOPES = 4096


def module_of(node: NodeProto) -> str:
    """Return the innermost module of a node, such as "layer1.0.conv1"; empty if the file does not tell."""
    text = next((entry.value for entry in node.metadata_props if entry.key == SCOPES), "")
    if not text or len(text) > _MAX_SCOPES:
        return ""
    try:
        scopes = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return ""
    if not isinstance(scopes, list) or len(scopes) < 2 or not isinstance(scopes[-2], str):
        return ""
    return scopes[-2]


def show_modules(nodes: Iterable[NodeProto], wrapper: str = "") -> dict[str, str]:
    """Put the path of its module in front of each node's name, and return the old names by the new ones.

    Args:
        nodes: the nodes; their names change.
        wrapper: the name of a module around the user's, which is left out of the paths.
    """
    nodes = list(nodes)
    names = {node.name for node in nodes}
    renamed: dict[str, str] = {}
    for node in nodes:
        old = node.name
        name = _without(wrapper, old, module_of(node))
        if name != old and name not in names:
            node.name = name
            names.add(name)
            renamed[name] = old
    return renamed


def _without(wrapper: str, name: str, module: str) -> str:
    """Return the name of a node with its module in front, and without the wrapper's."""
    if wrapper and name.startswith(f"/{wrapper}/"):  # the older exporter's form
        return name[len(wrapper) + 1 :]
    module = "" if module == wrapper else module.removeprefix(f"{wrapper}.") if wrapper else module
    return f"{module}/{name}" if module and name.startswith(_NODE) else name


def original_name(name: str) -> str:
    """Return what the exporter called a node whose name was changed by `show_modules`; another name as it is."""
    _, slash, last = name.rpartition("/")
    return last if slash and last.startswith(_NODE) else name
