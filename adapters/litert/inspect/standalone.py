"""A quantized .tflite without its float model: its integer tensors, and its weights.

A debug model of TensorFlow holds each op twice, in integers and in float, and a NumericVerify that compares the two.
LiteRT does not run these; they are removed, and the comparison is done here.

"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from quaver.adapters.inspection import StandaloneView
from quaver.adapters.litert.inspect.matching import (
    operators_by_float_name,
    origin,
    parameters_of,
    quantized_constant,
    weight_of,
)
from quaver.adapters.litert.load import graph as graphs
from quaver.adapters.litert.load import sources
from quaver.adapters.litert.load.graph import Graph, Operator
from quaver.adapters.litert.load.model_file import load_tflite
from quaver.adapters.litert.run.calibrator import InspectableModel
from quaver.adapters.litert.run.session import float_specs, quantize_inputs
from quaver.adapters.model_errors import as_model_error
from quaver.affine import QuantizedTensor
from quaver.introspection import QuantizedOp, QuantizedPair, StandaloneRun
from quaver.types import Feed

VERIFY = "CUSTOM:NumericVerify"


class StandaloneFile(StandaloneView):
    """A quantized file, made by any tool."""

    def __init__(self, source: Any, threads: int) -> None:
        content, self._verified = _without_verify(_content(source))
        graph = self._graph = Graph(load_tflite(content))
        self.inputs = float_specs(graph)
        self._names = {op.index: name for name, op in operators_by_float_name(graph).items()}
        ops_by_name: dict[str, QuantizedOp] = {}
        for op in graph.operators:
            for tensor in op.outputs[:1]:
                parameters = parameters_of(graph, tensor)
                if parameters is None or (self._verified and tensor not in self._verified):
                    continue
                name = self._verified[tensor][0] if self._verified else self._name(op)
                ops_by_name[name] = QuantizedOp(name, op.kind, graph.tensor_name(tensor), parameters, tensor)
        self.ops = tuple(ops_by_name.values())
        self._whole = InspectableModel(graph, [spec.name for spec in self.inputs], threads)

    def run(self, feed: Feed) -> StandaloneRun:
        self._whole.invoke(quantize_inputs(self._graph, feed))
        beside = len({real for _, real in self._verified.values()})
        outputs = self._whole.outputs()
        return StandaloneRun({op.name: self._pair(op) for op in self.ops}, outputs[: len(outputs) - beside])

    def _pair(self, op: QuantizedOp) -> QuantizedPair:
        integers = QuantizedTensor(self._whole.raw(op.tensor), op.parameters)
        beside = self._verified.get(-1 if op.tensor_id is None else op.tensor_id)
        return QuantizedPair(integers, None if beside is None else self._whole.value(beside[1]))

    def weights(self) -> Iterator[tuple[str, QuantizedTensor]]:
        for op in self._graph.operators:
            tensor = weight_of(self._graph, op)
            constant = None if tensor is None else quantized_constant(self._graph, tensor)
            if constant is not None:
                yield self._name(op), constant

    def _name(self, op: Operator) -> str:
        """Return the operator's name in the float model; the input's name for one that only quantizes an input."""
        if op.index in self._names:
            return self._names[op.index]
        return self._graph.tensor_name(origin(self._graph, op.inputs[0]))


def _content(source: Any) -> bytes:
    if isinstance(source, bytes | bytearray | memoryview):
        return bytes(source)
    if isinstance(source, str | os.PathLike) and Path(source).suffix.lower() in sources.LITE:
        return sources.existing(source).read_bytes()
    return load_tflite(source)


def _without_verify(content: bytes) -> tuple[bytes, dict[int, tuple[str, str]]]:
    """Return a model without its NumericVerify; their name and float tensor by quantized tensor."""
    if not sources.is_lite(content):
        return content, {}
    with as_model_error("the model"):
        graph = Graph(content)
    verify = [op for op in graph.operators if op.kind == VERIFY and len(op.inputs) > 1 and op.outputs]
    if not verify:
        return content, {}
    pairs = {
        op.inputs[0]: (graph.tensor_name(op.outputs[0]), graph.tensor_name(op.inputs[1]))
        for op in verify
        if parameters_of(graph, op.inputs[0]) is not None and graph.is_float(op.inputs[1])
    }
    removed = {op.index for op in verify}
    graph.main.operators = [op for at, op in enumerate(graph.main.operators) if at not in removed]
    # Nothing reads the float tensors any more, and the runtime may drop unread ones: as outputs they stay.
    graph.main.outputs = [*graph.outputs, *dict.fromkeys(graph.tensor_at(real) for _, real in pairs.values())]
    return graphs.write(graph.model), pairs
