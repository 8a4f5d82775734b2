"""Shape inference: element types, ranks and fixed shapes of all tensors, from `onnx` and from ONNX Runtime."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import onnx
import onnxruntime as ort
from onnx import ModelProto, TensorProto, TensorShapeProto, ValueInfoProto

from quaver.adapters.onnxrt.load.graph import Graph
from quaver.adapters.onnxrt.load.tensors import SHAPE_ELEMENTS
from quaver.adapters.onnxrt.run import session as sessions
from quaver.errors import BuildError
from quaver.types import Array


def infer_types(graph: Graph) -> None:
    """Fill in element types, ranks and fixed shapes. Tensors of unknown type are not offered for int8.

    A shape counts as fixed only if it follows from the inputs and constants, which the runtime enforces. Declared
    shapes of
    outputs are not enforced: many models declare a batch of one and take any.
    """
    model = without_large_constants(graph)
    try:
        inferred = onnx.shape_inference.infer_shapes(_without_declared_shapes(model), data_prop=True)
    except Exception:  # inference stops at a node it cannot follow; inputs and outputs are known all the same
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


# By tensor, the size of each axis: a number, the name of an open axis, or None.
Dimensions = dict[str, tuple[int | str | None, ...]]


def dimensions(graph: Graph) -> Dimensions:
    """Return what is known of the shapes of all tensors, with open axes. Tensors of unknown rank are left out.

    A name stands for the same size wherever it occurs. As in `infer_types`, declared shapes of outputs do not count.
    """
    model = without_large_constants(graph)
    try:
        inferred = onnx.shape_inference.infer_shapes(_without_declared_shapes(model), data_prop=True)
    except Exception:  # inference stops at a node that it cannot follow
        inferred = _without_declared_shapes(model)
    values = [*inferred.graph.input, *inferred.graph.output, *inferred.graph.value_info]
    return {
        value.name: tuple(_size(dim) for dim in value.type.tensor_type.shape.dim)
        for value in values
        if value.type.tensor_type.HasField("shape")
    }


def _size(dim: TensorShapeProto.Dimension) -> int | str | None:
    if dim.HasField("dim_value"):
        return int(dim.dim_value) if dim.dim_value > 0 else None
    return str(dim.dim_param) or None


def without_large_constants(graph: Graph, inside: Collection[str] = ()) -> ModelProto:
    """Return the model without its large constants, which become inputs, except those named in `inside`."""
    model = ModelProto()
    model.CopyFrom(graph.shell)
    model.graph.node.extend(graph.nodes)
    input_names = {value.name for value in model.graph.input}
    for name, array in graph.constants.items():
        kind = _element_type(array)
        if array.dtype != object and (array.size <= SHAPE_ELEMENTS or name in inside):
            model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array), name))
        elif name not in input_names:
            model.graph.input.append(onnx.helper.make_tensor_value_info(name, kind, array.shape))
        graph.types[name], graph.ranks[name] = kind, array.ndim
    return model


def restore_constants(graph: Graph, model: ModelProto) -> Graph:
    """Return the graph that another tool made of `without_large_constants(graph)`, with the constants put back.

    Inputs, outputs and metadata are those of `graph`.
    """
    shell = ModelProto()
    shell.CopyFrom(graph.shell)
    small: dict[str, Array] = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    twin = Graph(list(model.graph.node), graph.constants | small, shell)
    twin.index()
    read = set(twin.consumers) | {value.name for value in shell.graph.output}
    twin.constants = {
        name: array for name, array in twin.constants.items() if name in read and name not in twin.producers
    }
    twin.merged = dict(graph.merged)
    return twin


def _without_declared_shapes(model: ModelProto) -> ModelProto:
    """Return the model with the types of its outputs only, and with open dimensions where inputs declare -1 or 0.

    An input that is an output, too, counts as an input: without a shape here, `onnx` forgets the one that it has there.
    """
    copy = ModelProto()
    copy.CopyFrom(model)
    inputs = {value.name for value in copy.graph.input}
    outputs = [value for value in copy.graph.output if value.name not in inputs]
    del copy.graph.output[:]
    copy.graph.output.extend(outputs)
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
    """Ask ONNX Runtime for types behind operators of other domains (com.microsoft, ...), which `onnx` does not know."""
    output_names = {value.name for value in model.graph.output}
    model.graph.output.extend(ValueInfoProto(name=name) for name in unknown if name not in output_names)
    options = sessions.options(1)
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        values = sessions.create(model.SerializeToString(), options).get_outputs()
    except (BuildError, ValueError):  # the operator needs a library, or the message is too large
        return
    for value in values:
        if value.type == "tensor(float)" and value.name not in graph.types:
            graph.types[value.name] = int(TensorProto.FLOAT)
            if value.shape:
                graph.ranks[value.name] = len(value.shape)


def _element_type(array: Array) -> int:
    if array.dtype == object:
        return int(TensorProto.STRING)
    return int(onnx.helper.np_dtype_to_tensor_dtype(array.dtype))
