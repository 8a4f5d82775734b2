"""One operator as a model of its own: to time it, and to see its own error."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from numpy.typing import NDArray

from quaver.adapters.batches import Feed
from quaver.adapters.litert import graph as graphs
from quaver.adapters.litert.graph import Graph
from quaver.adapters.litert.session import Session


class Whole:
    """A model of which every tensor can be read after a run."""

    def __init__(self, content: bytes, inputs: list[str], threads: int) -> None:
        self.graph = Graph(content)
        self._session = Session(content, inputs, threads, keep_all=True)
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._places = {entry["name"]: entry for entry in self._session.interpreter.get_tensor_details()}

    def invoke(self, feed: Feed) -> None:
        """Run."""
        self._shapes = {}
        self._session.invoke(feed)

    def has(self, name: str) -> bool:
        """Whether there is a tensor of this name."""
        return name in self._places

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor in the last run."""
        if not self._shapes:
            self._shapes = {
                entry["name"]: tuple(map(int, entry["shape"]))
                for entry in self._session.interpreter.get_tensor_details()
            }
        return self._shapes[name]

    def raw(self, name: str) -> NDArray[Any]:
        """A tensor as it is."""
        array: NDArray[Any] = self._session.interpreter.get_tensor(self._places[name]["index"])
        return array

    def value(self, name: str) -> NDArray[Any]:
        """A tensor as float, dequantized where it is int8."""
        scale, zero = self.scale(name)
        array = self.raw(name)
        return array if scale == 0.0 else ((array.astype(np.float32) - zero) * np.float32(scale))

    def scale(self, name: str) -> tuple[float, int]:
        """The scale and zero point of a tensor; 0 where it is not quantized."""
        scale, zero = self._places[name]["quantization"]
        return float(scale), int(zero)


@dataclass(frozen=True)
class Alone:
    """One operator by itself.

    Attributes:
        session: runs it, fed by the names of the tensors it reads.
        inputs: those names.
        output: the name of the tensor it writes first.
    """

    session: Session
    inputs: list[str]
    output: str


def alone(graph: Graph, index: int, shapes: Mapping[str, tuple[int, ...]], threads: int) -> Alone:
    """Take one operator out of a model. What it reads becomes an input, but for constants and its own state."""
    operator = copy.copy(graph.main.operators[index])
    made, part = schema.ModelT(), schema.SubGraphT()
    made.version, made.buffers, made.subgraphs = 3, [schema.BufferT()], [part]
    made.operatorCodes = [graph.model.operatorCodes[operator.opcodeIndex]]
    part.tensors, part.operators, part.name = [], [operator], b"main"
    place = {-1: -1}

    def add(tensor: int) -> int:
        if tensor not in place:
            entry = copy.copy(graph.main.tensors[tensor])
            entry.shape = list(shapes.get(graph.tensor_name(tensor), graphs.as_list(entry.shape)))
            entry.shapeSignature = None
            if graph.is_constant(tensor):
                made.buffers.append(graph.model.buffers[entry.buffer])
                entry.buffer = len(made.buffers) - 1
            else:
                entry.buffer = 0
            place[tensor] = len(part.tensors)
            part.tensors.append(entry)
        return place[tensor]

    operator.opcodeIndex = 0
    for field in ("inputs", "outputs", "intermediates"):
        tensors = graphs.as_list(getattr(operator, field))
        setattr(operator, field, [add(int(tensor)) for tensor in tensors])
    op = graph.operators[index]
    fed = [
        tensor
        for tensor in dict.fromkeys(op.inputs)
        if tensor >= 0 and not graph.is_constant(tensor) and not graph.main.tensors[tensor].isVariable
    ]
    part.inputs = [place[tensor] for tensor in fed]
    part.outputs = [place[tensor] for tensor in op.outputs]
    names = [graph.tensor_name(tensor) for tensor in fed]
    return Alone(Session(graphs.write(made), names, threads), names, graph.tensor_name(op.outputs[0]))


def quantized(values: NDArray[Any], scale: float, zero: int) -> NDArray[np.int8]:
    """Float values in int8."""
    steps: NDArray[Any] = np.rint(values / np.float32(scale)) + zero
    whole: NDArray[np.int8] = np.clip(steps, -128, 127).astype(np.int8)
    return whole


def origin(graph: Graph, tensor: int) -> int:
    """The tensor that was quantized or dequantized into this one."""
    writer = graph.writers.get(tensor)
    while writer is not None and graph.operators[writer].kind in ("QUANTIZE", "DEQUANTIZE"):
        tensor = graph.operators[writer].inputs[0]
        writer = graph.writers.get(tensor)
    return tensor
