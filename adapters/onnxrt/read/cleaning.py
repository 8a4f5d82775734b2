"""Small rewrites that make a graph quantizable without changing what it computes."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import onnx
from onnx import NodeProto
from onnx.reference import ReferenceEvaluator

from quaver.adapters.onnxrt.read.graph import Array, Graph
from quaver.adapters.onnxrt.read.inference import infer_types
from quaver.adapters.onnxrt.read.tensors import to_array

log = logging.getLogger(__name__)

# Cheap ops that exporters leave between a weight and the op that reads it.
_FOLDED = {"Identity", "Transpose", "Reshape", "Squeeze", "Unsqueeze", "Cast"}


# The operand that leaves the other one as it is.
_IDLE = {"Add": 0, "Sub": 0, "Mul": 1, "Div": 1}


def separate_constants(graph: Graph) -> None:
    """Turn Constant nodes into constants of the graph. The other nodes become copies, which may be changed."""
    graph.nodes = [_copy(node) for node in graph.nodes]
    take_constants(graph)
    graph.index()


def _copy(node: NodeProto) -> NodeProto:
    copy = NodeProto()
    copy.CopyFrom(node)
    return copy


def take_constants(graph: Graph) -> None:
    """`Constant` nodes become initializers, save those of strings and sparse tensors."""
    kept = []
    for node in graph.nodes:
        value = _constant_value(node)
        if value is None:
            kept.append(node)
        else:
            graph.constants[node.output[0]] = value
    graph.nodes = kept


def _constant_value(node: NodeProto) -> Array | None:
    if node.op_type != "Constant" or node.domain not in ("", "ai.onnx"):
        return None
    entry = node.attribute[0]
    if entry.name == "value" and entry.t.data_type != onnx.TensorProto.STRING:
        return to_array(entry.t, Path())  # data that lay outside was fetched before
    if entry.name in ("value_float", "value_floats"):
        return np.asarray(entry.f if entry.name == "value_float" else list(entry.floats), np.float32)
    if entry.name in ("value_int", "value_ints"):
        return np.asarray(entry.i if entry.name == "value_int" else list(entry.ints), np.int64)
    return None


def fold_constants(graph: Graph) -> int:
    """Run the cheap ops that only constants feed, so that a transposed or reshaped weight is seen as a weight.

    Returns how many nodes it replaced.
    """
    opset = [entry for entry in graph.shell.opset_import if entry.domain in ("", "ai.onnx")]
    outputs = {value.name for value in graph.shell.graph.output}
    kept = []
    for node in graph.nodes:
        feed = {name: graph.constants[name] for name in node.input if name in graph.constants}
        constant = node.input and len(feed) == len(set(node.input)) and len(node.output) == 1
        foldable = node.op_type in _FOLDED and not node.domain and constant and node.output[0] not in outputs
        value = _evaluate(node, feed, opset) if foldable else None
        if value is None:
            kept.append(node)
        else:
            graph.constants[node.output[0]] = value
    folded = len(graph.nodes) - len(kept)
    graph.nodes = kept
    graph.index()
    return folded


def _evaluate(node: NodeProto, feed: dict[str, Array], opset: list[onnx.OperatorSetIdProto]) -> Array | None:
    """What a node makes of constants, or None where the reference implementation does not know."""
    inputs = [
        onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in feed.items()
    ]
    output = onnx.helper.make_tensor_value_info(node.output[0], onnx.TensorProto.UNDEFINED, None)
    model = onnx.helper.make_model(onnx.helper.make_graph([node], "constant", inputs, [output]), opset_imports=opset)
    try:
        (value,) = ReferenceEvaluator(model).run(None, feed)
    except Exception as error:
        log.debug("%s %r was not folded: %s", node.op_type, node.name, error)
        return None
    return np.asarray(value, order="C")


def drop_idle(graph: Graph) -> int:
    """Drop what multiplies by one or adds zero. The optimiser would, and then fuse what stands around it.

    Returns how many nodes it dropped.
    """
    graph.index()
    renamed: dict[str, str] = {}
    kept = []
    for node in graph.nodes:
        for slot, name in enumerate(node.input):
            node.input[slot] = renamed.get(name, name)
        source = _unchanged(graph, node)
        if source is None or node.output[0] in graph.pinned:
            kept.append(node)
        else:
            renamed[node.output[0]] = source
    graph.nodes = kept
    graph.index()
    return len(renamed)


def _unchanged(graph: Graph, node: NodeProto) -> str | None:
    """The operand that a node gives out as it is, if the other one is a constant that does nothing."""
    if node.op_type not in _IDLE or node.domain or len(node.input) != 2:
        return None
    left, right = node.input
    for source, other in ((left, right), (right, left))[: 2 if node.op_type in ("Add", "Mul") else 1]:
        value = graph.constants.get(other)
        if value is not None and value.size == 1 and value.reshape(-1)[0] == _IDLE[node.op_type]:
            # [1] makes a vector of a scalar.
            return source if value.ndim == 0 or value.ndim <= _rank(graph, source) else None
    return None


def _rank(graph: Graph, name: str) -> int:
    if not graph.ranks:
        infer_types(graph)
    return graph.ranks.get(name, 0)


def name_nodes(graph: Graph) -> None:
    """Give nameless and namesake nodes the name of what they produce, which is unique in a graph."""
    taken = {node.name for node in graph.nodes}
    seen = {""}
    for node in graph.nodes:
        if node.name in seen:
            base = next((name for name in node.output if name), node.op_type)
            node.name, count = base, 1
            while node.name in taken:
                count += 1
                node.name = f"{base}_{count}"
            taken.add(node.name)
        seen.add(node.name)


def drop_unread(graph: Graph) -> None:
    """Forget constants that nobody reads any more."""
    read = set(graph.consumers) | {value.name for value in graph.shell.graph.output}
    graph.constants = {name: array for name, array in graph.constants.items() if name in read}
