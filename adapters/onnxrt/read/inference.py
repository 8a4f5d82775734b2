"""Element types and ranks of all tensors: what `onnx` can tell, and what only ONNX Runtime can."""

from __future__ import annotations

import itertools
from collections.abc import Collection

import numpy as np
import onnx
import onnxruntime as ort
from onnx import GraphProto, ModelProto, TensorProto, ValueInfoProto

from quaver.adapters.onnxrt.read.graph import Array, Graph, subgraphs
from quaver.adapters.onnxrt.run import session as sessions
from quaver.errors import BuildError

# Larger constants are no shapes, and take part with their own type and shape alone.
_SHAPE_ELEMENTS = 256


def infer_types(graph: Graph) -> None:
    """Fill in element types and ranks. What stays unknown is not offered for int8."""
    model = light_model(graph)
    try:
        known = onnx.shape_inference.infer_shapes(model, data_prop=True)
    except Exception:  # a node that inference cannot follow; inputs and outputs are still known
        known = model
    for value in [*known.graph.input, *known.graph.output, *known.graph.value_info]:
        _note(graph, value)
    unknown = [name for node in graph.nodes for name in node.output if name and name not in graph.types]
    if unknown:
        _ask_runtime(graph, model, unknown)


def light_model(graph: Graph, inside: Collection[str] = ()) -> ModelProto:
    """The model without its large constants, which become inputs, save those that shall stay `inside`."""
    model = ModelProto()
    model.CopyFrom(graph.shell)
    model.graph.node.extend(graph.nodes)
    given = {value.name for value in model.graph.input}
    for name, array in graph.constants.items():
        kind = _element_type(array)
        if array.dtype != object and (array.size <= _SHAPE_ELEMENTS or name in inside):
            model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array), name))
        elif name not in given:
            model.graph.input.append(onnx.helper.make_tensor_value_info(name, kind, array.shape))
        graph.types[name], graph.ranks[name] = kind, array.ndim
    _open_negative_dimensions(model.graph)
    return model


def _open_negative_dimensions(graph: GraphProto) -> None:
    """Clear dimensions below zero, which some exporters write for unknown ones.

    onnx takes them for lengths, and its inference of a Slice aborts the process.
    """
    for value in itertools.chain(graph.input, graph.output, graph.value_info):
        for dimension in value.type.tensor_type.shape.dim:
            if dimension.dim_value < 0:
                dimension.Clear()
    for node in graph.node:
        for body in subgraphs(node):
            _open_negative_dimensions(body)


def _note(graph: Graph, value: ValueInfoProto) -> None:
    kind = value.type.tensor_type
    if kind.elem_type:
        graph.types[value.name] = kind.elem_type
        if kind.HasField("shape"):
            graph.ranks[value.name] = len(kind.shape.dim)
            if all(dim.HasField("dim_value") for dim in kind.shape.dim):
                graph.shapes[value.name] = tuple(dim.dim_value for dim in kind.shape.dim)


def _ask_runtime(graph: Graph, model: ModelProto, unknown: list[str]) -> None:
    """Operators of other domains (com.microsoft, ...) are strangers to `onnx`, and with them all that comes after."""
    given = {value.name for value in model.graph.output}
    model.graph.output.extend(ValueInfoProto(name=name) for name in unknown if name not in given)
    options = sessions.options(1)
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        found = sessions.create(model.SerializeToString(), options).get_outputs()
    except (BuildError, ValueError):  # an operator of a library that has to be registered, or too large a message
        return
    for value in found:
        if value.type == "tensor(float)" and value.name not in graph.types:
            graph.types[value.name] = int(TensorProto.FLOAT)
            if value.shape:
                graph.ranks[value.name] = len(value.shape)


def _element_type(array: Array) -> int:
    if array.dtype == object:
        return int(TensorProto.STRING)
    return int(onnx.helper.np_dtype_to_tensor_dtype(array.dtype))
