"""From whatever the user has (a path, a ModelProto, bytes) to a clean `Graph`."""

from __future__ import annotations

import itertools
import logging
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, TensorProto

from quaver.adapters.onnxrt.read.cleaning import clean
from quaver.adapters.onnxrt.read.gemm import join_bias
from quaver.adapters.onnxrt.read.graph import Graph, subgraphs, with_bodies
from quaver.adapters.onnxrt.read.inference import infer_types
from quaver.adapters.onnxrt.read.rewrites.pipeline import Applied, optimise
from quaver.adapters.onnxrt.read.rewrites.skeleton import opset_of
from quaver.adapters.onnxrt.read.structure import check_structure
from quaver.adapters.onnxrt.read.tensors import elements, to_array, to_dense
from quaver.adapters.reading import reading
from quaver.errors import ModelError

log = logging.getLogger(__name__)

# Per-channel QuantizeLinear came with opset 13; older models are converted to this one.
OLDEST_OPSET = 13
CONVERT_TO = 17
# The newest format that every supported ONNX Runtime reads. A newer onnx package stamps models with its own, and
# nothing that came since changes what a graph means.
NEWEST_IR = 10
_CONVERTER_ELEMENTS = 256
_QUANTIZED = {
    "QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul", "ConvInteger",
    "MatMulInteger", "QGemm", "QAttention", "QLinearAdd", "MatMulNBits", "DynamicQuantizeMatMul",
    "MatMulIntegerToFloat",
}  # fmt: skip


def take_in(source: Any, optimise_float: bool = True) -> tuple[Graph, str, Applied, tuple[str, ...]]:
    """Read, check, clean and optimise a model.

    Returns the graph, the fingerprint of the model as given, which rewrites were applied how often, and what the model
    was converted to. Whatever is wrong with the model is a `ModelError`.
    """
    with reading("the ONNX model"):
        return _take_in(source, optimise_float)


def check_given(source: Any) -> None:
    """Refuse what cannot be read, or is not put together as a model is; a quantized one is fine."""
    with reading("the ONNX model"):
        check_structure(_read(source)[0])


def _take_in(source: Any, optimise_float: bool) -> tuple[Graph, str, Applied, tuple[str, ...]]:
    model, folder = _read(source)
    check_structure(model)
    _refuse_quantized(model)
    opset = _opset(model)
    _fetch_inner_data(model, folder)
    graph = _take_apart(_modern(model, folder), folder)
    graph.index()
    fingerprint = graph.fingerprint()
    given = Graph(graph.nodes, dict(graph.constants), graph.shell)  # cleaning copies nodes before it changes them
    clean(graph, scalars=not optimise_float)
    graph, applied = optimise(given, graph) if optimise_float else (graph, ())
    infer_types(graph)
    join_bias(graph, any_rank=optimise_float)
    converted = (f"opset {opset} to {opset_of(graph)}",) if opset_of(graph) != opset else ()
    return graph, fingerprint, applied, converted


def _read(source: Any) -> tuple[ModelProto, Path]:
    if isinstance(source, ModelProto):
        copy = ModelProto()
        copy.CopyFrom(source)
        return copy, Path()
    if isinstance(source, bytes | bytearray | memoryview):
        return _parse(bytes(source), "the bytes given as model"), Path()
    path = Path(os.fspath(source))
    if not path.is_file():
        raise ModelError(f"no model file at {str(path)!r}")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ModelError(f"the model file {str(path)!r} cannot be read: {error.strerror}") from error
    return _parse(content, repr(str(path))), path.parent


def _parse(data: bytes, what: str) -> ModelProto:
    try:
        model = onnx.load_model_from_string(data)
    except Exception as error:
        raise ModelError(f"{what} cannot be read as an ONNX model ({error})") from error
    if not model.graph.node:
        raise ModelError(f"{what} holds no graph: is it an ONNX model?")
    return model


def _refuse_quantized(model: ModelProto) -> None:
    nodes = [model.graph.node, *(function.node for function in model.functions)]
    found = next((node for node in with_bodies(itertools.chain(*nodes)) if node.op_type in _QUANTIZED), None)
    if found is not None:
        raise ModelError(
            f"the model is quantized already (it holds a {found.op_type} node, {found.name or found.output[0]!r}). "
            "quaver starts from the float model; give it the one this was made from"
        )


def _fetch_inner_data(model: ModelProto, folder: Path) -> None:
    """Read external data of tensors inside nodes; only initializers can stay outside."""
    for node in with_bodies(model.graph.node):
        tensors = [tensor for body in subgraphs(node) for tensor in body.initializer]
        for entry in node.attribute:
            tensors += [entry.t, *entry.tensors]
        for tensor in tensors:
            if tensor.data_location == TensorProto.EXTERNAL:
                tensor.CopyFrom(onnx.numpy_helper.from_array(np.asarray(to_array(tensor, folder)), tensor.name))


def _modern(model: ModelProto, folder: Path) -> ModelProto:
    opset = _opset(model)
    if opset >= OLDEST_OPSET:
        return model
    heavy = _lighten(model, folder)
    try:
        converted = onnx.version_converter.convert_version(model, CONVERT_TO)
    except Exception as error:
        raise ModelError(
            f"the model is of opset {opset}; per-channel int8 needs {OLDEST_OPSET}, and converting it to {CONVERT_TO} "
            f"failed: {str(error).strip()}. Export it again with opset {OLDEST_OPSET} or newer"
        ) from error
    log.info("converted the model from opset %d to %d", opset, CONVERT_TO)
    if not converted.metadata_props:
        converted.metadata_props.extend(model.metadata_props)
    converted.ir_version = max(converted.ir_version, 8)
    converted.graph.initializer.extend(heavy)
    return converted


def _opset(model: ModelProto) -> int:
    opset = next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), None)
    if opset is None:
        raise ModelError("the model imports no version of the standard operators (opset_import is empty)")
    return int(opset)


def _lighten(model: ModelProto, folder: Path) -> list[TensorProto]:
    """Take the large constants out of a model, so that neither their size nor their place counts for the converter.

    It reads small ones (shapes, axes, scales), which must therefore be inside; the others become inputs for a while.
    """
    light, heavy = [], []
    listed = {value.name for value in model.graph.input}
    for tensor in model.graph.initializer:
        if elements(tensor, tensor.name) > _CONVERTER_ELEMENTS:
            heavy.append(tensor)
            if tensor.name not in listed:
                value = onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
                model.graph.input.append(value)
        elif tensor.data_location == TensorProto.EXTERNAL:
            light.append(onnx.numpy_helper.from_array(np.asarray(to_array(tensor, folder)), tensor.name))
        else:
            light.append(tensor)
    del model.graph.initializer[:]
    model.graph.initializer.extend(light)
    return heavy


def _take_apart(model: ModelProto, folder: Path) -> Graph:
    """Split a model into nodes, arrays and the rest. Constants listed as inputs too (old exporters) stay constants."""
    constants = {tensor.name: to_array(tensor, folder) for tensor in model.graph.initializer}
    constants |= {tensor.values.name: to_dense(tensor, folder) for tensor in model.graph.sparse_initializer}
    inputs = [value for value in model.graph.input if value.name not in constants]
    nodes = list(model.graph.node)
    shell = ModelProto()
    for descriptor, value in model.ListFields():
        if descriptor.name not in ("graph", "training_info"):
            _copy_field(shell, descriptor.name, value)
    shell.graph.name = model.graph.name or "graph"
    shell.graph.doc_string = model.graph.doc_string
    shell.graph.input.extend(inputs)
    shell.graph.output.extend(model.graph.output)
    shell.ir_version = min(max(model.ir_version, 7), NEWEST_IR)
    return Graph(nodes, constants, shell)


def _copy_field(shell: ModelProto, name: str, value: Any) -> None:
    if hasattr(value, "extend") or isinstance(value, list):
        getattr(shell, name).extend(value)
    else:
        setattr(shell, name, value)
