"""Load the user's model (a path, a ModelProto or bytes) as a clean `Graph`."""

from __future__ import annotations

import itertools
import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, ValueInfoProto

from quaver.adapters.model_errors import as_model_error
from quaver.adapters.onnxrt.load.cleanup import separate_constants
from quaver.adapters.onnxrt.load.graph import Graph, subgraphs, with_bodies
from quaver.adapters.onnxrt.load.module_names import MODULE_NAMES, show_modules
from quaver.adapters.onnxrt.load.old_opsets import open_negative_dimensions, opset_of_model, to_modern_opset
from quaver.adapters.onnxrt.load.padding import keep_padding_before_pools, pad_all_axes
from quaver.adapters.onnxrt.load.shape_inference import infer_types
from quaver.adapters.onnxrt.load.structure import check_structure
from quaver.adapters.onnxrt.load.tensors import SHAPE_ELEMENTS, elements, to_array, to_dense
from quaver.adapters.onnxrt.optimize.pipeline import RewriteSummary, rewrite
from quaver.errors import ModelError
from quaver.types import ModelLike

# The newest IR version that every supported ONNX Runtime reads. A newer onnx package writes its own version into
# models, and nothing that came since changes what a graph means.
NEWEST_IR = 10
_QUANTIZED = {
    "QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul", "ConvInteger",
    "MatMulInteger", "QGemm", "QAttention", "QLinearAdd", "MatMulNBits", "DynamicQuantizeMatMul",
    "MatMulIntegerToFloat",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model that was read, converted and rewritten.

    Attributes:
        graph: the float graph that is tuned.
        fingerprint: a hash of the model before it was rewritten.
        rewritten: which rewrites were applied, how often, and which failed.
        conversions: what the model was converted from and to, such as ("opset 11 to 17",).
    """

    graph: Graph
    fingerprint: str
    rewritten: RewriteSummary
    conversions: tuple[str, ...]


def load_model(source: ModelLike, optimise_float: bool = True, left_out: Collection[str] = ()) -> LoadedModel:
    """Read, check, convert and rewrite a model.

    Args:
        source: a path, a `ModelProto` or bytes.
        optimise_float: rewrite the float graph so that it is fast before it is quantized.
        left_out: names of rewrites that must not be applied.

    Raises:
        ModelError: the model is damaged, quantized already, or not supported.
    """
    with as_model_error("the ONNX model"):
        model, folder = read_model_file(source)
        check_structure(model)
        _refuse_quantized(model)
        opset = opset_of_model(model)
        _load_nested_data(model, folder)
        graph = _split_model(to_modern_opset(model, folder), folder)
        graph.index()
        fingerprint = graph.fingerprint()
        if MODULE_NAMES not in left_out:
            for name, original in show_modules(graph.nodes).items():
                graph.merge(name, original)
        open_negative_dimensions(graph.shell)
        separate_constants(graph)
        pad_all_axes(graph)
        keep_padding_before_pools(graph)
        graph, rewritten = rewrite(graph, optimise_float, left_out)
        infer_types(graph)
        conversions = (f"opset {opset} to {graph.opset}",) if graph.opset != opset else ()
        return LoadedModel(graph, fingerprint, rewritten, conversions)


def check_readable(source: ModelLike) -> None:
    """Raise `ModelError` if a model cannot be read or is malformed. A quantized model is fine."""
    with as_model_error("the ONNX model"):
        check_structure(read_model_file(source)[0])


def read_model_file(source: ModelLike) -> tuple[ModelProto, Path]:
    """Return a copy of the user's model, and the folder of its external data."""
    if isinstance(source, ModelProto):
        copy = ModelProto()
        copy.CopyFrom(source)
        return copy, Path()
    if isinstance(source, bytes | bytearray | memoryview):
        return _parse(bytes(source), "the bytes passed as model"), Path()
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
        raise ModelError(f"{what} contains no graph: is it an ONNX model?")
    return model


def _refuse_quantized(model: ModelProto) -> None:
    nodes = [model.graph.node, *(function.node for function in model.functions)]
    quantized_node = next((node for node in with_bodies(itertools.chain(*nodes)) if node.op_type in _QUANTIZED), None)
    if quantized_node is not None:
        name = quantized_node.name or quantized_node.output[0]
        raise ModelError(
            f"the model is quantized already (it holds a {quantized_node.op_type} node, {name!r}). "
            "quaver starts from the float model: pass the one this was made from"
        )


def fetch_small_data(model: ModelProto, folder: Path) -> None:
    """Read external data of shapes, axes and other small constants: ONNX Runtime needs them to infer shapes."""
    for tensor in model.graph.initializer:
        if tensor.data_location == TensorProto.EXTERNAL and elements(tensor, tensor.name) <= SHAPE_ELEMENTS:
            tensor.CopyFrom(onnx.numpy_helper.from_array(np.asarray(to_array(tensor, folder)), tensor.name))


def _load_nested_data(model: ModelProto, folder: Path) -> None:
    """Load external data of tensors inside nodes; only the data of initializers can stay in its file."""
    for node in with_bodies(model.graph.node):
        tensors = [tensor for body in subgraphs(node) for tensor in body.initializer]
        for entry in node.attribute:
            tensors += [entry.t, *entry.tensors]
        for tensor in tensors:
            if tensor.data_location == TensorProto.EXTERNAL:
                tensor.CopyFrom(onnx.numpy_helper.from_array(np.asarray(to_array(tensor, folder)), tensor.name))


def _split_model(model: ModelProto, folder: Path) -> Graph:
    """Split a model into nodes, arrays and the rest. Constants that old exporters list as inputs too stay constants."""
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
    if any(True for node in nodes for _ in subgraphs(node)):  # bodies need shapes that ONNX Runtime cannot infer
        shell.graph.value_info.extend(map(_without_sizes, model.graph.value_info))
    shell.ir_version = min(max(model.ir_version, 7), NEWEST_IR)
    return Graph(nodes, constants, shell)


def _without_sizes(value: ValueInfoProto) -> ValueInfoProto:
    """Return the type and rank of a tensor, without its sizes.

    A declared size may hold for one batch only, and the runtime would enforce it.
    """
    copy = ValueInfoProto()
    copy.CopyFrom(value)
    if copy.type.HasField("tensor_type"):
        for dim in copy.type.tensor_type.shape.dim:
            dim.Clear()
    return copy


def _copy_field(shell: ModelProto, name: str, value: Any) -> None:
    if hasattr(value, "extend") or isinstance(value, list):
        getattr(shell, name).extend(value)
    else:
        setattr(shell, name, value)
