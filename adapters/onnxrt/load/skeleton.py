"""A graph handed to others (a runtime, a converter) without its large constants, and taken back from them."""

from __future__ import annotations

import onnx
from onnx import ModelProto

from quaver.adapters.onnxrt.load.graph import Graph
from quaver.types import Array


def restore_constants(graph: Graph, model: ModelProto) -> Graph:
    """The graph that somebody made of `light_model(graph)`. Inputs, outputs and all around them stay as they were."""
    shell = ModelProto()
    shell.CopyFrom(graph.shell)
    small: dict[str, Array] = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    twin = Graph(list(model.graph.node), graph.constants | small, shell)
    twin.index()
    read = set(twin.consumers) | {value.name for value in shell.graph.output}
    made = twin.producers
    twin.constants = {name: array for name, array in twin.constants.items() if name in read and name not in made}
    twin.merged = dict(graph.merged)
    return twin


def opset_of(graph: Graph) -> int:
    """The version of the standard operators."""
    return next(int(entry.version) for entry in graph.shell.opset_import if entry.domain in ("", "ai.onnx"))
