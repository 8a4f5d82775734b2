"""Node names: the user's names, and the user's order, for a graph that another tool rewrote."""

from __future__ import annotations

from onnx import NodeProto

from quaver.adapters.onnxrt.load.graph import Graph, captures

# Op types that lend their name to a fused node, if its own name is new and no node of its kind went into it.
_LAYERS = ("Conv", "ConvTranspose", "Gemm", "MatMul")


def restore_names(before: Graph, after: Graph) -> None:
    """Name new nodes after one that went into them, and note all that did.

    A tool that fuses nodes keeps the name of the last one's output. So the nodes that went into a new one are those
    before
    its output, back to tensors that still exist.
    """
    old_names = {node.name for node in before.nodes}
    inputs = {value.name for value in after.inputs}
    existing = set(after.producers) | set(after.constants) | inputs
    used_names = {node.name for node in after.nodes}
    for node in after.nodes:
        parts = _parts(before, node, existing)
        if parts and node.name not in old_names:
            name = _called_after(node, parts)
            if name not in used_names:
                node.name = name
                used_names.add(name)
        after.merge(node.name, *(part.name for part in parts if part.name != node.name))
    _name_the_new(before, after, old_names, used_names)
    after.merged = {name: names for name, names in after.merged.items() if names}


def _name_the_new(before: Graph, after: Graph, old_names: set[str], used_names: set[str]) -> None:
    """Name a node that writes a new tensor after the node that reads it: "swish.HardSigmoid"."""
    for node in reversed(after.nodes):
        if node.name in old_names or any(name in before.producers for name in node.output):
            continue
        readers = [after.nodes[index] for name in node.output for index in after.consumers.get(name, [])]
        name = f"{readers[0].name}.{node.op_type}" if readers else node.name
        if name not in used_names:
            node.name = name
            used_names.add(name)


def restore_order(before: Graph, after: Graph) -> None:
    """Put nodes in the user's order, if they can run in that order."""
    places: dict[str, int] = {}  # of tensors
    keys = []
    for number, node in enumerate(after.nodes):
        own = [before.producers[name] for name in node.output if name in before.producers]
        place = own[0] if own else max((places.get(name, 0) for name in node.input), default=0)
        places.update(dict.fromkeys(node.output, place))
        keys.append((place, number))
    ordered = [after.nodes[number] for _, number in sorted(keys)]
    if _runs(after, ordered):
        after.nodes = ordered
        after.index()


def _runs(graph: Graph, nodes: list[NodeProto]) -> bool:
    written: set[str] = set()
    for node in nodes:
        if any(name in graph.producers and name not in written for name in (*node.input, *captures(node))):
            return False
        written.update(node.output)
    return True


def _parts(before: Graph, node: NodeProto, existing: set[str]) -> list[NodeProto]:
    """Return the nodes that went into a new one, in graph order."""
    indices: set[int] = set()
    waiting = [before.producers[name] for name in node.output if name in before.producers]
    while waiting:
        index = waiting.pop()
        if index in indices:
            continue
        indices.add(index)
        waiting += [
            before.producers[n] for n in before.nodes[index].input if n in before.producers and n not in existing
        ]
    return [before.nodes[index] for index in sorted(indices)]


def _called_after(node: NodeProto, parts: list[NodeProto]) -> str:
    alike = [part for part in parts if part.op_type == node.op_type]
    layers = [part for part in parts if part.op_type in _LAYERS]
    return (alike or layers or parts[-1:])[0].name
