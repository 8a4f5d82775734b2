"""Structure checks: every part that later code relies on is there, so that no later code needs to ask."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable

import onnx
from onnx import ModelProto, NodeProto, TensorProto

from quaver.adapters.onnxrt.load.graph import captures, subgraphs, with_bodies
from quaver.errors import ModelError

_STANDARD = ("", "ai.onnx")


def check_structure(model: ModelProto) -> None:
    """Refuse names that are not text, nodes without inputs, outputs or a value, inputs of unknown types, and cycles."""
    _check_names(model)
    if not model.graph.output:
        raise ModelError("the model has no outputs")
    opset = next((entry.version for entry in model.opset_import if entry.domain in _STANDARD), 0)
    for index, node in enumerate(model.graph.node):
        _check_node(node, index, opset)
    for value in model.graph.input:
        kind = value.type.tensor_type.elem_type
        if kind and kind not in TensorProto.DataType.values():
            raise ModelError(f"input {value.name!r} is of the unknown element type {kind}")
    _check_cycles(model, _producers_of(model))


def _check_names(model: ModelProto) -> None:
    """Refuse names that are not UTF-8, which protobuf returns as bytes."""
    _check_text("an operator set", (entry.domain for entry in model.opset_import))
    nodes = list(with_bodies(itertools.chain(model.graph.node, *(function.node for function in model.functions))))
    for graph in (model.graph, *(body for node in nodes for body in subgraphs(node))):
        ends = itertools.chain(graph.input, graph.output, graph.value_info)
        _check_text("an input, an output or a tensor", (value.name for value in ends))
        sparse = (tensor for entry in graph.sparse_initializer for tensor in (entry.values, entry.indices))
        for tensor in itertools.chain(graph.initializer, sparse):
            texts = (text for entry in tensor.external_data for text in (entry.key, entry.value))
            _check_text("a constant", [tensor.name])
            _check_text(f"the external data of {tensor.name!r}", texts)
    for node in nodes:
        _check_text("a node", [node.name, node.op_type, node.domain])
        _check_text(f"what node {node.name!r} reads or writes", itertools.chain(node.input, node.output))
        _check_text(f"an attribute of node {node.name!r}", (entry.name for entry in node.attribute))


def _producers_of(model: ModelProto) -> dict[str, int]:
    """Return the index of the node that writes each tensor; -1 for inputs and constants."""
    makers = {tensor.name: -1 for tensor in itertools.chain(model.graph.input, model.graph.initializer)}
    makers |= {tensor.values.name: -1 for tensor in model.graph.sparse_initializer}
    for index, node in enumerate(model.graph.node):
        for name in filter(None, node.output):
            if name in makers:
                raise ModelError(f"the tensor {name!r} is written twice, the second time by {_describe(node, index)}")
            makers[name] = index
    return makers


def _check_cycles(model: ModelProto, makers: dict[str, int]) -> None:
    """Refuse nodes that wait for their own result, in whatever order the nodes are listed."""
    readers: list[list[int]] = [[] for _ in model.graph.node]
    waiting = [0] * len(model.graph.node)
    for index, node in enumerate(model.graph.node):
        for producer in {makers.get(name, -1) for name in (*node.input, *captures(node))} - {-1}:
            readers[producer].append(index)
            waiting[index] += 1
    ready = [index for index, count in enumerate(waiting) if not count]
    while ready:
        for reader in readers[ready.pop()]:
            waiting[reader] -= 1
            if not waiting[reader]:
                ready.append(reader)
    for index, count in enumerate(waiting):
        if count:
            raise ModelError(
                f"{_describe(model.graph.node[index], index)} waits for its own result: the graph has a cycle"
            )


def _describe(node: NodeProto, index: int) -> str:
    return f"node {node.name or index!r} ({node.op_type or 'of no type'})"


def _check_text(what: str, names: Iterable[str | bytes]) -> None:
    for name in names:
        if not isinstance(name, str):
            raise ModelError(f"the name of {what} is not text ({name[:40]!r})")


def _check_node(node: NodeProto, index: int, opset: int) -> None:
    subject = _describe(node, index)
    if not node.op_type:
        raise ModelError(f"{subject} has no operator")
    if not any(node.output):
        raise ModelError(f"{subject} has no output")
    if node.domain not in _STANDARD:
        return
    if node.op_type == "Constant" and len(node.attribute) != 1:
        raise ModelError(f"{subject} must have one value, not {len(node.attribute)}")
    arity = _arity(node.op_type, opset)
    counts = len(node.input), len(node.output)
    for what, have, (least, most) in zip(("input", "output"), counts, arity, strict=True):
        if not least <= have <= most:
            raise ModelError(f"{subject} has {have} {what}(s); the operator takes {least} to {most}")


@functools.cache
def _arity(kind: str, opset: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return how many inputs and outputs a standard operator takes, least and most; any number if it is unknown."""
    try:
        schema = onnx.defs.get_schema(kind, opset, "")
    except Exception:  # the opset is newer than the package, or the operator does not exist: the runtime will say so
        return (0, 2**31), (1, 2**31)
    return (schema.min_input, schema.max_input), (max(schema.min_output, 1), schema.max_output)
