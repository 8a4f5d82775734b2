"""Element types and ranks of all tensors: what `onnx` can tell, and what only ONNX Runtime can."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import onnx
import onnxruntime as ort
from onnx import ModelProto, TensorProto, ValueInfoProto

from quaver.adapters.onnxrt.load.graph import Graph
from quaver.adapters.onnxrt.load.tensors import SHAPE_ELEMENTS
from quaver.adapters.onnxrt.run import session as sessions
from quaver.errors import BuildError
from quaver.types import Array


def infer_types(graph: Graph) -> None:
    """Fill in element types, ranks and fixed shapes. What stays unknown is not offered for int8.

    A shape counts as fixed only if it follows from the inputs and the constants, which the runtime enforces. The shape
    that a model declares for an output it does not enforce: many say a batch of one and take any.
    """
    model = without_large_constants(graph)
    try:
        inferred = onnx.shape_inference.infer_shapes(_without_declared_shapes(model), data_prop=True)
    except Exception:  # a node that inference cannot follow; inputs and outputs are still known
        inferred = ModelProto()
        inferred.graph.input.extend(model.graph.input)
    graph.shapes.clear()
    for value in model.graph.output:
        _record_type(graph, value, fixed=False)
    for value in [*inferred.graph.input, *inferred.graph.output, *inferred.graph.value_info]:
        _record_type(graph, value)
    unknown = [name for node in graph.nodes for name in node.output if name and name not in graph.types]
    if unknown:
        _infer_with_runtime(graph, model, unknown)


def without_large_constants(graph: Graph, inside: Collection[str] = ()) -> ModelProto:
    """The model without its large constants, which become inputs, save those that shall stay `inside`."""
    model = ModelProto()
    model.CopyFrom(graph.shell)
    model.graph.node.extend(graph.nodes)
    given = {value.name for value in model.graph.input}
    for name, array in graph.constants.items():
        kind = _element_type(array)
        if array.dtype != object and (array.size <= SHAPE_ELEMENTS or name in inside):
            model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array), name))
        elif name not in given:
            model.graph.input.append(onnx.helper.make_tensor_value_info(name, kind, array.shape))
        graph.types[name], graph.ranks[name] = kind, array.ndim
    return model


def _without_declared_shapes(model: ModelProto) -> ModelProto:
    """The model with the types of its outputs only, and with open dimensions of inputs, which some write as -1 or 0."""
    copy = ModelProto()
    copy.CopyFrom(model)
    for value in copy.graph.output:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
    del copy.graph.value_info[:]
    for value in copy.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            if dim.HasField("dim_value") and dim.dim_value <= 0:
                dim.ClearField("dim_value")
    return copy


def _record_type(graph: Graph, value: ValueInfoProto, fixed: bool = True) -> None:
    kind = value.type.tensor_type
    if kind.elem_type:
        graph.types[value.name] = kind.elem_type
        if kind.HasField("shape"):
            graph.ranks[value.name] = len(kind.shape.dim)
            if fixed and all(dim.HasField("dim_value") and dim.dim_value > 0 for dim in kind.shape.dim):
                graph.shapes[value.name] = tuple(dim.dim_value for dim in kind.shape.dim)


def _infer_with_runtime(graph: Graph, model: ModelProto, unknown: list[str]) -> None:
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
