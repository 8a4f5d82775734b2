"""Small rewrites that make a graph quantizable without changing what it computes."""

from __future__ import annotations

import logging

import numpy as np
import onnx
from onnx import NodeProto
from onnx.reference import ReferenceEvaluator

from quaver.adapters.onnxrt.graph import Array, Graph, integer, real

log = logging.getLogger(__name__)

# Cheap ops that exporters leave between a weight and the op that reads it.
_FOLDED = {"Identity", "Transpose", "Reshape", "Squeeze", "Unsqueeze", "Cast"}


def clean(graph: Graph) -> None:
    """Constants out of nodes, weights next to their readers, BatchNorm into its Conv, a name for every node."""
    graph.nodes = [_copy(node) for node in graph.nodes]
    _take_constants(graph)
    _fold_constants(graph)
    graph.index()
    _fold_batchnorm(graph)
    _name_nodes(graph)
    graph.index()
    _drop_unread(graph)


def _copy(node: NodeProto) -> NodeProto:
    copy = NodeProto()
    copy.CopyFrom(node)
    return copy


def _take_constants(graph: Graph) -> None:
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
        return onnx.numpy_helper.to_array(entry.t)
    if entry.name in ("value_float", "value_floats"):
        return np.asarray(entry.f if entry.name == "value_float" else list(entry.floats), np.float32)
    if entry.name in ("value_int", "value_ints"):
        return np.asarray(entry.i if entry.name == "value_int" else list(entry.ints), np.int64)
    return None


def _fold_constants(graph: Graph) -> None:
    """Run the cheap ops that only constants feed, so that a transposed or reshaped weight is seen as a weight."""
    opset = [entry for entry in graph.shell.opset_import if entry.domain in ("", "ai.onnx")]
    outputs = {value.name for value in graph.shell.graph.output}
    kept = []
    for node in graph.nodes:
        feed = {name: graph.constants[name] for name in node.input if name in graph.constants}
        constant = node.input and len(feed) == len(set(node.input)) and len(node.output) == 1
        if node.op_type in _FOLDED and not node.domain and constant and node.output[0] not in outputs:
            (graph.constants[node.output[0]],) = _evaluate(node, feed, opset)
        else:
            kept.append(node)
    graph.nodes = kept


def _evaluate(node: NodeProto, feed: dict[str, Array], opset: list[onnx.OperatorSetIdProto]) -> list[Array]:
    inputs = [
        onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in feed.items()
    ]
    output = onnx.helper.make_tensor_value_info(node.output[0], onnx.TensorProto.UNDEFINED, None)
    model = onnx.helper.make_model(onnx.helper.make_graph([node], "constant", inputs, [output]), opset_imports=opset)
    return [np.asarray(array, order="C") for array in ReferenceEvaluator(model).run(None, feed)]


def _fold_batchnorm(graph: Graph) -> None:
    """Scale and shift a convolution's weights by the BatchNormalization that follows, and drop that node."""
    gone: set[int] = set()
    for node in graph.nodes:
        if node.op_type not in ("Conv", "ConvTranspose") or node.input[1] not in graph.constants:
            continue
        norm = graph.only_reader(node.output[0])
        if norm is None or norm.op_type != "BatchNormalization" or not _folds(graph, node, norm):
            continue
        scale, shift = _scale_and_shift(graph, norm)
        weight, bias = graph.constants[node.input[1]], None
        if len(node.input) > 2 and node.input[2]:
            bias = graph.constants[node.input[2]].astype(np.float64)
        graph.constants[f"{norm.output[0]}.weight"] = _scaled(weight, scale, node)
        graph.constants[f"{norm.output[0]}.bias"] = (shift if bias is None else shift + bias * scale).astype(
            weight.dtype
        )
        inputs = [node.input[0], f"{norm.output[0]}.weight", f"{norm.output[0]}.bias"]
        del node.input[:]
        node.input.extend(inputs)
        node.output[0] = norm.output[0]
        gone.add(id(norm))
    graph.nodes = [node for node in graph.nodes if id(node) not in gone]


def _folds(graph: Graph, node: NodeProto, norm: NodeProto) -> bool:
    known = all(name in graph.constants for name in norm.input[1:5])
    bias = len(node.input) < 3 or not node.input[2] or node.input[2] in graph.constants
    inference = integer(norm, "training_mode", 0) == 0 and len([name for name in norm.output if name]) == 1
    return known and bias and inference


def _scale_and_shift(graph: Graph, norm: NodeProto) -> tuple[Array, Array]:
    gamma, beta, mean, variance = (graph.constants[name].astype(np.float64) for name in norm.input[1:5])
    scale = gamma / np.sqrt(variance + real(norm, "epsilon", 1e-5))
    return scale, beta - mean * scale


def _scaled(weight: Array, scale: Array, node: NodeProto) -> Array:
    """The weight with each output channel scaled. A ConvTranspose keeps them on axis 1, repeated for each group."""
    wide = weight.astype(np.float64)
    if node.op_type == "Conv":
        return (wide * scale.reshape(-1, *[1] * (weight.ndim - 1))).astype(weight.dtype)
    groups = integer(node, "group", 1)
    parts = wide.reshape(groups, -1, *weight.shape[1:])
    factor = scale.reshape(groups, 1, -1, *[1] * (weight.ndim - 2))
    return (parts * factor).reshape(weight.shape).astype(weight.dtype)


def _name_nodes(graph: Graph) -> None:
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


def _drop_unread(graph: Graph) -> None:
    """Forget constants that nobody reads any more."""
    read = set(graph.consumers) | {value.name for value in graph.shell.graph.output}
    graph.constants = {name: array for name, array in graph.constants.items() if name in read}
