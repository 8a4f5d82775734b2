"""Old opsets: convert a model to an opset with per-channel quantization, without changing what it computes.

`onnx.version_converter` does most of it. It changes the meaning of three old operators (onnx 1.23): Upsample and Resize
before opset 11, and Hardmax before opset 13. This module corrects those. Everything else is left to the comparison of
the float model with the model as given (`optimize/verify.py`), which refuses a model that a conversion has changed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, MutableSequence
from pathlib import Path

import numpy as np
import onnx
import onnx.inliner
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper

from quaver.adapters.onnxrt.load.graph import attribute, captures, integer, subgraphs, with_bodies
from quaver.adapters.onnxrt.load.tensors import SHAPE_ELEMENTS, elements, to_array
from quaver.errors import ModelError
from quaver.types import Array

log = logging.getLogger(__name__)

# Per-channel QuantizeLinear came with opset 13. Older models are converted to opset 17, which also has
# LayerNormalization.
OLDEST_OPSET = 13
CONVERT_TO = 17
# Since this opset Resize means what it does today (ONNX operator specification).
_RESIZE_OPSET = 11


def opset_of_model(model: ModelProto) -> int:
    """Return the version of the standard operators. Raises `ModelError` if the model names none."""
    opset = next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), None)
    if opset is None:
        raise ModelError("the model imports no version of the standard operators (opset_import is empty)")
    return int(opset)


def to_modern_opset(model: ModelProto, folder: Path) -> ModelProto:
    """Return the model in an opset with per-channel quantization; the model itself if it is new enough.

    Args:
        model: the model, which may be changed.
        folder: the folder of its external data.
    """
    opset = opset_of_model(model)
    if opset >= OLDEST_OPSET:
        return model
    if model.functions:  # the converter drops them
        model = onnx.inliner.inline_local_functions(model, convert_version=True)
    _spell_domain_as_converter_does(model)
    open_negative_dimensions(model)
    for nodes in _node_lists(model.graph):
        _flatten_around_softmax(nodes)
    large = _take_out_large_constants(model, folder)
    try:
        converted = onnx.version_converter.convert_version(model, CONVERT_TO)
    except Exception as error:
        raise ModelError(
            f"the model is of opset {opset}; per-channel int8 needs {OLDEST_OPSET}, and converting it to {CONVERT_TO} "
            f"failed: {str(error).strip()}. Export it again with opset {OLDEST_OPSET} or newer"
        ) from error
    if opset < _RESIZE_OPSET:
        _restore_old_resize(converted)
    log.info("converted the model from opset %d to %d", opset, CONVERT_TO)
    if not converted.metadata_props:
        converted.metadata_props.extend(model.metadata_props)
    converted.ir_version = max(converted.ir_version, 8)
    converted.graph.initializer.extend(large)
    return converted


def _spell_domain_as_converter_does(model: ModelProto) -> None:
    """Rename the standard domain "ai.onnx" to "": the converter knows no other spelling."""
    for node in with_bodies(model.graph.node):
        if node.domain == "ai.onnx":
            node.domain = ""
    for entry in model.opset_import:
        if entry.domain == "ai.onnx":
            entry.domain = ""
    versions = {entry.domain: entry.version for entry in model.opset_import}
    del model.opset_import[:]
    model.opset_import.extend(helper.make_opsetid(domain, version) for domain, version in versions.items())


def open_negative_dimensions(model: ModelProto) -> None:
    """Leave dimensions open that are declared as -1, in bodies too: they can make onnx's shape inference abort."""
    for graph in (model.graph, *(body for node in with_bodies(model.graph.node) for body in subgraphs(node))):
        for value in (*graph.input, *graph.output, *graph.value_info):
            for dim in value.type.tensor_type.shape.dim if value.type.HasField("tensor_type") else ():
                if dim.HasField("dim_value") and dim.dim_value < 0:
                    dim.ClearField("dim_value")


def _node_lists(graph: GraphProto) -> Iterator[MutableSequence[NodeProto]]:
    """Yield the nodes of a graph, and of each body in it, as lists that can be changed."""
    for node in graph.node:
        for body in subgraphs(node):
            yield from _node_lists(body)
    yield graph.node


def _flatten_around_softmax(nodes: MutableSequence[NodeProto]) -> None:
    """Give a Softmax of any kind a matrix: before opset 13 it took all axes from `axis` on as one, now a single axis.

    The converter forgets this for Hardmax, and fails on the others if a body reads their result.
    """
    captured = set().union(*(captures(node) for node in nodes))
    affected = [
        node
        for node in nodes
        if node.op_type == "Hardmax" or (node.op_type in ("Softmax", "LogSoftmax") and node.output[0] in captured)
    ]
    if not affected:
        return
    changed: list[NodeProto] = []
    for node in nodes:
        if node not in affected or node.domain:
            changed.append(node)
            continue
        source, result = node.input[0], node.output[0]
        shape, rows, flat = (f"{result}.{part}" for part in ("shape", "rows", "matrix"))
        changed += [
            helper.make_node("Shape", [source], [shape], f"{shape}_of"),
            helper.make_node("Flatten", [source], [rows], f"{rows}_of", axis=integer(node, "axis", 1)),
            helper.make_node(node.op_type, [rows], [flat], node.name, axis=1),
            helper.make_node("Reshape", [flat, shape], [result], f"{result}.back"),
        ]
    copies = [NodeProto.FromString(node.SerializeToString()) for node in changed]
    del nodes[:]
    nodes.extend(copies)


def _restore_old_resize(model: ModelProto) -> None:
    """Make each converted Resize compute what Upsample and Resize did before opset 11.

    They map places by `x / scale`, and the nearest neighbour is the one below, or above where an axis shrinks. Later
    versions have one rule for all axes, so a Resize that enlarges some axes and shrinks others becomes two.
    """
    constants = _small_constants(model.graph)
    for nodes in _node_lists(model.graph):
        changed: list[NodeProto] = []
        for node in nodes:
            changed += _as_old_resize(node, constants) if node.op_type == "Resize" and not node.domain else [node]
        if len(changed) > len(nodes):
            copies = [NodeProto.FromString(node.SerializeToString()) for node in changed]
            del nodes[:]
            nodes.extend(copies)


def _as_old_resize(node: NodeProto, constants: Mapping[str, Array]) -> list[NodeProto]:
    scales = constants.get(node.input[2]) if len(node.input) > 2 else None
    shrinks = scales is not None and bool(np.any(scales < 1))
    _set_text(node, "coordinate_transformation_mode", "asymmetric")
    mode = attribute(node, "mode")
    if mode is not None and mode.s != b"nearest":
        return [node]
    _set_text(node, "nearest_mode", "ceil" if shrinks else "floor")
    if scales is None or not shrinks or not np.any(scales > 1):
        return [node]
    larger = NodeProto()
    larger.CopyFrom(node)
    label = f"{node.output[0]}.enlarged"
    larger.name, larger.output[0] = label, label
    _set_text(larger, "nearest_mode", "floor")
    parts = []
    for resize, part in ((larger, np.maximum(scales, 1)), (node, np.minimum(scales, 1))):
        name = f"{resize.output[0]}.scales"
        parts += [_constant(name, part), resize]
        resize.input[2] = name
    node.input[0] = label
    return parts


def _constant(name: str, value: Array) -> NodeProto:
    tensor = onnx.numpy_helper.from_array(np.asarray(value, np.float32), name)
    return helper.make_node("Constant", [], [name], f"{name}.constant", value=tensor)


def _small_constants(graph: GraphProto) -> dict[str, Array]:
    """Return initializers and results of Constant nodes, in bodies too, whose values are inside the model."""
    constants = {
        tensor.name: onnx.numpy_helper.to_array(tensor)
        for tensor in graph.initializer
        if tensor.data_location != TensorProto.EXTERNAL
    }
    for node in graph.node:
        value = attribute(node, "value") if node.op_type == "Constant" else None
        if value is not None:
            constants[node.output[0]] = onnx.numpy_helper.to_array(value.t)
        for body in subgraphs(node):
            constants |= _small_constants(body)
    return constants


def _set_text(node: NodeProto, name: str, text: str) -> None:
    entry = attribute(node, name)
    if entry is None:
        node.attribute.append(helper.make_attribute(name, text))
    else:
        entry.s = text.encode()


def _take_out_large_constants(model: ModelProto, folder: Path) -> list[TensorProto]:
    """Turn large constants into inputs for the converter, so that their size does not matter, and return them."""
    small: list[TensorProto] = []
    large: list[TensorProto] = []
    listed = {value.name for value in model.graph.input}
    for tensor in model.graph.initializer:
        if elements(tensor, tensor.name) > SHAPE_ELEMENTS:
            large.append(tensor)
            if tensor.name not in listed:
                value = helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
                model.graph.input.append(value)
        elif tensor.data_location == TensorProto.EXTERNAL:
            small.append(onnx.numpy_helper.from_array(np.asarray(to_array(tensor, folder)), tensor.name))
        else:
            small.append(tensor)
    del model.graph.initializer[:]
    model.graph.initializer.extend(small)
    return large
