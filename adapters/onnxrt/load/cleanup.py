"""Cleanup: small rewrites that make a graph quantizable without changing what it computes.

Constants become arrays, cheap ops on constants are folded, arithmetic without effect is dropped, nodes get unique
names, and a MatMul with an Add becomes a Gemm.
"""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import onnx
from onnx import NodeProto, helper
from onnx.reference import ReferenceEvaluator

from quaver.adapters.onnxrt.load.graph import Graph
from quaver.adapters.onnxrt.load.shape_inference import infer_types
from quaver.adapters.onnxrt.load.tensors import to_array
from quaver.types import Array

log = logging.getLogger(__name__)

# Cheap ops that exporters leave between a weight and the op that reads it.
_FOLDED = {"Identity", "Transpose", "Reshape", "Squeeze", "Unsqueeze", "Cast"}


# The constant operand that leaves the other operand unchanged.
_IDLE = {"Add": 0, "Sub": 0, "Mul": 1, "Div": 1}


def separate_constants(graph: Graph) -> None:
    """Turn Constant nodes into constants of the graph. The other nodes become copies, which may be changed."""
    graph.nodes = [_copy(node) for node in graph.nodes]
    constants_from_nodes(graph)
    graph.index()


def _copy(node: NodeProto) -> NodeProto:
    copy = NodeProto()
    copy.CopyFrom(node)
    return copy


def constants_from_nodes(graph: Graph) -> None:
    """Turn `Constant` nodes into constants of the graph, except those of strings and sparse tensors."""
    remaining = []
    for node in graph.nodes:
        value = _constant_value(node)
        if value is None:
            remaining.append(node)
        else:
            graph.constants[node.output[0]] = value
    graph.nodes = remaining


def _constant_value(node: NodeProto) -> Array | None:
    if node.op_type != "Constant" or node.domain not in ("", "ai.onnx"):
        return None
    entry = node.attribute[0]
    if entry.name == "value" and entry.t.data_type != onnx.TensorProto.STRING:
        return to_array(entry.t, Path())  # external data was read before
    if entry.name in ("value_float", "value_floats"):
        return np.asarray(entry.f if entry.name == "value_float" else list(entry.floats), np.float32)
    if entry.name in ("value_int", "value_ints"):
        return np.asarray(entry.i if entry.name == "value_int" else list(entry.ints), np.int64)
    return None


def fold_constants(graph: Graph) -> int:
    """Evaluate cheap ops on constants, so that a transposed or reshaped weight is seen as a weight.

    Returns:
        How many nodes were replaced.
    """
    opset = [entry for entry in graph.shell.opset_import if entry.domain in ("", "ai.onnx")]
    outputs = {value.name for value in graph.shell.graph.output}
    remaining = []
    for node in graph.nodes:
        feed = {name: graph.constants[name] for name in node.input if name in graph.constants}
        constant = node.input and len(feed) == len(set(node.input)) and len(node.output) == 1
        foldable = node.op_type in _FOLDED and not node.domain and constant and node.output[0] not in outputs
        value = _evaluate(node, feed, opset) if foldable else None
        if value is None:
            remaining.append(node)
        else:
            graph.constants[node.output[0]] = value
    folded = len(graph.nodes) - len(remaining)
    graph.nodes = remaining
    graph.index()
    return folded


def _evaluate(node: NodeProto, feed: dict[str, Array], opset: list[onnx.OperatorSetIdProto]) -> Array | None:
    """Return what a node computes from constants; None if the reference implementation cannot run it."""
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


def drop_identity_arithmetic(graph: Graph) -> int:
    """Drop nodes that multiply by one or add zero. The optimiser would drop them too, and then fuse what is around
    them.

    Returns:
        How many nodes were dropped.
    """
    graph.index()
    renamed: dict[str, str] = {}
    remaining = []
    for node in graph.nodes:
        for slot, name in enumerate(node.input):
            node.input[slot] = renamed.get(name, name)
        source = _unchanged_operand(graph, node)
        if source is None or node.output[0] in graph.pinned:
            remaining.append(node)
        else:
            renamed[node.output[0]] = source
    graph.nodes = remaining
    graph.index()
    return len(renamed)


def _unchanged_operand(graph: Graph, node: NodeProto) -> str | None:
    """Return the operand that a node returns unchanged, if its other operand is a constant without effect."""
    if node.op_type not in _IDLE or node.domain or len(node.input) != 2:
        return None
    left, right = node.input
    for source, other in ((left, right), (right, left))[: 2 if node.op_type in ("Add", "Mul") else 1]:
        value = graph.constants.get(other)
        if value is not None and value.size == 1 and value.reshape(-1)[0] == _IDLE[node.op_type]:
            # The shape [1] makes a vector of a scalar.
            return source if value.ndim == 0 or value.ndim <= _rank(graph, source) else None
    return None


def _rank(graph: Graph, name: str) -> int:
    if not graph.ranks:
        infer_types(graph)
    return graph.ranks.get(name, 0)


def name_nodes(graph: Graph) -> None:
    """Give nodes without a unique name the name of what they write, which is unique in a graph."""
    names = {node.name for node in graph.nodes}
    used = {""}
    for node in graph.nodes:
        if node.name in used:
            base = next((name for name in node.output if name), node.op_type)
            node.name, count = base, 1
            while node.name in names:
                count += 1
                node.name = f"{base}_{count}"
            names.add(node.name)
        used.add(node.name)


def drop_unread_constants(graph: Graph) -> None:
    """Drop constants that no node and no output reads."""
    read = set(graph.consumers) | {value.name for value in graph.shell.graph.output}
    graph.constants = {name: array for name, array in graph.constants.items() if name in read}


def fuse_bias(graph: Graph, any_rank: bool = True) -> int:
    """Make a Gemm of a MatMul with a constant matrix and the Add of its bias.

    Args:
        graph: the graph, which is changed.
        any_rank: also fuse products of rank above two whose shape is known, between two Reshapes.

    Returns:
        How many products got their bias.
    """
    return _BiasJoiner(graph, any_rank).run()


class _BiasJoiner:
    """One pass over a graph. New names are remembered until the graph is indexed again."""

    def __init__(self, graph: Graph, any_rank: bool) -> None:
        self._graph, self._any_rank = graph, any_rank
        self._node_names = {node.name for node in graph.nodes}
        self._new_tensors: set[str] = set()
        self._rows_of: dict[str, str] = {}

    def run(self) -> int:
        graph = self._graph
        joined: set[int] = set()
        nodes: list[NodeProto] = []
        for node in graph.nodes:
            addition = self._bias_addition(node)
            if addition is None:
                nodes.append(node)
                continue
            bias = next(name for name in addition.input if name != node.output[0])
            row = self._new_tensor(f"{addition.output[0]}.bias")
            graph.constants[row] = graph.constants[bias].reshape(-1)
            graph.merge(node.name, addition.name)
            joined.add(id(addition))
            node.op_type = "Gemm"
            node.input.append(row)
            if graph.ranks[node.input[0]] == 2:
                nodes.append(node)
                node.output[0] = addition.output[0]
            else:
                nodes += self._between_reshapes(node, addition.output[0])
        graph.nodes = [node for node in nodes if id(node) not in joined]
        graph.index()
        drop_unread_constants(graph)
        return len(joined)

    def _bias_addition(self, node: NodeProto) -> NodeProto | None:
        """Return the Add that adds one row to each row of a product with a constant matrix, if both become a Gemm."""
        graph = self._graph
        if node.op_type != "MatMul" or node.domain or node.input[1] not in graph.constants:
            return None
        rank, weight = graph.ranks.get(node.input[0], 0), graph.constants[node.input[1]]
        addition = graph.only_reader(node.output[0])
        if weight.dtype != np.float32 or weight.ndim != 2 or addition is None or addition.op_type != "Add":
            return None
        bias = graph.constants.get(next((name for name in addition.input if name != node.output[0]), ""))
        if bias is None or bias.ndim > max(rank, 1):
            return None
        if bias.size != weight.shape[1] or bias.shape[-1:] != weight.shape[1:]:
            return None
        flattened = self._any_rank and rank > 2 and node.input[0] in graph.shapes
        return addition if rank == 2 or flattened else None

    def _between_reshapes(self, gemm: NodeProto, output: str) -> list[NodeProto]:
        """Return the Gemm on rows between two Reshapes. Products of one tensor share the first Reshape."""
        graph, source = self._graph, gemm.input[0]
        *outer, inner = graph.shapes[source]
        width = graph.constants[gemm.input[1]].shape[1]
        nodes = [gemm]
        if source not in self._rows_of:
            self._rows_of[source] = self._new_tensor(f"{source}.rows")
            nodes.insert(0, self._reshape(source, self._rows_of[source], [-1, inner]))
        gemm.input[0], gemm.output[0] = self._rows_of[source], self._new_tensor(f"{output}.rows")
        rows = int(np.prod(outer))
        for name, shape in ((gemm.input[0], (rows, inner)), (gemm.output[0], (rows, width))):
            graph.types[name], graph.ranks[name], graph.shapes[name] = graph.types[source], 2, shape
        return [*nodes, self._reshape(gemm.output[0], output, [*outer, width])]

    def _reshape(self, source: str, target: str, shape: list[int]) -> NodeProto:
        name = f"{target}.reshape"
        while name in self._node_names:
            name += "_"
        self._node_names.add(name)
        constant = self._new_tensor(f"{name}.shape")
        self._graph.constants[constant] = np.array(shape, np.int64)
        self._graph.types[constant], self._graph.ranks[constant] = 7, 1
        return helper.make_node("Reshape", [source, constant], [target], name=name)

    def _new_tensor(self, wanted: str) -> str:
        """Return a name that no tensor of the graph has, nor any that this pass has made."""
        name, count = self._graph.free_name(wanted), 1
        while name in self._new_tensors:
            count += 1
            name = self._graph.free_name(f"{wanted}_{count}")
        self._new_tensors.add(name)
        return name
