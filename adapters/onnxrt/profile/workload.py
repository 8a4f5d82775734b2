"""The workload of a model: how many multiply-adds one inference takes, whatever the machine."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from onnx import NodeProto

from quaver.adapters.onnxrt.build import protobuf
from quaver.adapters.onnxrt.build.builder import Builder
from quaver.adapters.onnxrt.build.emitter import Emitter
from quaver.adapters.onnxrt.run import session as sessions
from quaver.types import Feed

# The ops that most of the arithmetic is in.
_PRODUCTS = {"Conv", "ConvTranspose", "MatMul", "Gemm"}
_RECURRENT = {"LSTM", "GRU", "RNN"}

Shapes = Mapping[str, Sequence[int]]


def multiply_adds(builder: Builder, feed: Feed, threads: int) -> float:
    """Return the multiply-adds of the float model on a feed, from the shapes that its tensors have there."""
    graph = builder.graph
    nodes = [node for node in graph.nodes if node.op_type in _PRODUCTS | _RECURRENT]
    if not nodes:
        return 0.0
    shapes = {name: np.shape(array) for name, array in (*graph.constants.items(), *feed.items())}
    shapes |= {name: shape for name, shape in graph.shapes.items() if name not in shapes}
    needed = dict.fromkeys(name for node in nodes for name in (*node.input, *node.output[:1]) if name)
    if missing := [name for name in needed if name not in shapes]:
        shapes |= _measured_shapes(builder, missing, feed, threads)
    return float(sum(_products(node, shapes) for node in nodes))


def _measured_shapes(builder: Builder, names: Sequence[str], feed: Feed, threads: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes of tensors of the float model on a feed."""
    emitter = Emitter(builder, None)
    emitter.run(())
    outputs = [builder.label(name, "shape") for name in names]
    for name, output in zip(names, outputs, strict=True):
        emitter.nodes.append(protobuf.node("Shape", [name], [output], output))
        emitter.entries.append(protobuf.output(output))
    serialized = emitter.finish(())
    folder = serialized.store.path.parent
    session = sessions.create(serialized.skeleton(), sessions.options(threads), folder)
    return {name: tuple(shape) for name, shape in zip(names, session.run(outputs, feed), strict=True)}


def _products(node: NodeProto, shapes: Shapes) -> int:
    first, second, result = shapes[node.input[0]], shapes[node.input[1]], shapes[node.output[0]]
    if node.op_type == "Conv":
        return math.prod(result) * math.prod(second[1:])
    if node.op_type == "ConvTranspose":
        return math.prod(first) * math.prod(second[1:])
    if node.op_type in _RECURRENT:
        return math.prod(first[:-1]) * (math.prod(second) + math.prod(shapes[node.input[2]]))
    transposed = next((entry.i for entry in node.attribute if entry.name == "transA"), 0)
    return math.prod(result) * (first[0 if transposed else -1] if first else 1)
