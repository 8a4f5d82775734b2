"""Models made of some operators of another one, to time them or to run one op by itself."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from quaver.adapters.litert.load import graph as graphs
from quaver.adapters.litert.load.graph import Graph

Shapes = Mapping[str, tuple[int, ...]]


class Submodel:
    """Collects operators of another model, with fixed tensor shapes."""

    def __init__(self, graph: Graph, shapes: Shapes) -> None:
        self._graph, self._shapes = graph, shapes
        self._made, self._operator_model = schema.ModelT(), schema.SubGraphT()
        self._made.version, self._made.buffers, self._made.subgraphs = 3, [schema.BufferT()], [self._operator_model]
        self._made.operatorCodes = []
        self._operator_model.tensors, self._operator_model.operators, self._operator_model.name = [], [], b"main"
        self._place = {-1: -1}
        self._buffers: dict[int, int] = {}
        self._codes: dict[int, int] = {}

    def add(self, index: int) -> None:
        """Copy an operator with its constants."""
        operator = copy.copy(self._graph.main.operators[index])
        code = operator.opcodeIndex
        if code not in self._codes:
            self._codes[code] = self._code(self._graph.model.operatorCodes[code])
        operator.opcodeIndex = self._codes[code]
        for field in ("inputs", "outputs", "intermediates"):
            tensors = graphs.as_list(getattr(operator, field))
            setattr(operator, field, [self.place(int(tensor)) for tensor in tensors])
        self._operator_model.operators.append(operator)

    def place(self, tensor: int) -> int:
        """Return the index in this model of a tensor of the other one, which is copied on first use."""
        if tensor not in self._place:
            graph, entry = self._graph, copy.copy(self._graph.main.tensors[tensor])
            entry.shape = list(self._shapes.get(graph.tensor_name(tensor), graphs.as_list(entry.shape)))
            entry.shapeSignature = None
            entry.buffer = self._buffer(entry.buffer) if graph.is_constant(tensor) else 0
            self._place[tensor] = self._append(entry)
        return self._place[tensor]

    def quantized_from_float(self, tensor: int) -> int:
        """Add a float tensor, and a node that quantizes it into this one, ahead of operators that are added later."""
        entry = copy.copy(self._operator_model.tensors[self.place(tensor)])
        entry.name, entry.type, entry.quantization = bytes(entry.name or b"") + b"|float", 0, None
        code = schema.OperatorCodeT()
        code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.QUANTIZE
        code.version = 1
        if -1 not in self._codes:
            self._codes[-1] = self._code(code)
        node, node_input = schema.OperatorT(), self._append(entry)
        node.opcodeIndex, node.inputs, node.outputs = self._codes[-1], [node_input], [self.place(tensor)]
        node.builtinOptionsType = schema.BuiltinOptions.QuantizeOptions
        node.builtinOptions = schema.QuantizeOptionsT()
        self._operator_model.operators.append(node)
        return node_input

    def content(self, inputs: Sequence[int], outputs: Iterable[int]) -> bytes:
        """Return the file.

        Args:
            inputs: indices of the inputs in this model.
            outputs: tensors of the other model.
        """
        self._operator_model.inputs = list(inputs)
        self._operator_model.outputs = [self.place(tensor) for tensor in outputs]
        return graphs.write(self._made)

    def _append(self, entry: Any) -> int:
        self._operator_model.tensors.append(entry)
        return len(self._operator_model.tensors) - 1

    def _code(self, code: Any) -> int:
        self._made.operatorCodes.append(code)
        return len(self._made.operatorCodes) - 1

    def _buffer(self, buffer: int) -> int:
        if buffer not in self._buffers:
            node_input, data = schema.BufferT(), self._graph.model.buffers[buffer].data
            node_input.data = np.frombuffer(data, np.uint8) if isinstance(data, bytes | bytearray) else data
            self._made.buffers.append(node_input)
            self._buffers[buffer] = len(self._made.buffers) - 1
        return self._buffers[buffer]


def activation_inputs(graph: Graph, index: int) -> list[int]:
    """Return the tensors that an operator must be fed: its inputs without constants and its own state."""
    return [
        tensor
        for tensor in dict.fromkeys(graph.operators[index].inputs)
        if tensor >= 0 and not graph.is_constant(tensor) and not graph.main.tensors[tensor].isVariable
    ]


def one(graph: Graph, index: int, shapes: Shapes) -> tuple[bytes, list[str]]:
    """Return a model of one operator, and the names of the tensors to feed it."""
    piece = Submodel(graph, shapes)
    piece.add(index)
    tensors = activation_inputs(graph, index)
    content = piece.content([piece.place(tensor) for tensor in tensors], graph.operators[index].outputs)
    return content, [graph.tensor_name(tensor) for tensor in tensors]


def first_operators(graph: Graph, count: int, shapes: Shapes) -> bytes:
    """Return a model of the first operators; its outputs are all that later operators or the user read."""
    piece = Submodel(graph, shapes)
    for index in range(count):
        piece.add(index)
    written = [tensor for op in graph.operators[:count] for tensor in op.outputs]
    ends = {tensor for op in graph.operators[count:] for tensor in op.inputs} | set(graph.outputs)
    return piece.content([piece.place(tensor) for tensor in graph.inputs], [at for at in written if at in ends])


def trivial_model() -> bytes:
    """Return a model that negates one number, to measure the cost of calling an interpreter."""
    made, part, code, node = schema.ModelT(), schema.SubGraphT(), schema.OperatorCodeT(), schema.OperatorT()
    code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.NEG
    code.version = 1
    part.tensors = []
    for name in (b"in", b"out"):
        tensor = schema.TensorT()
        tensor.name, tensor.type, tensor.shape, tensor.buffer = name, schema.TensorType.FLOAT32, [1], 0
        part.tensors.append(tensor)
    node.opcodeIndex, node.inputs, node.outputs = 0, [0], [1]
    part.operators, part.inputs, part.outputs, part.name = [node], [0], [1], b"main"
    made.version, made.buffers, made.subgraphs, made.operatorCodes = 3, [schema.BufferT()], [part], [code]
    return graphs.write(made)
