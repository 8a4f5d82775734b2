"""Kernels: what ONNX Runtime's optimiser makes of a model, and the ops that its kernels come from."""

from __future__ import annotations

import re
from collections.abc import Iterable

import onnx
from onnx import TensorProto

from quaver.adapters.onnxrt.build.builder import Builder
from quaver.adapters.onnxrt.run import session as sessions
from quaver.files.temporary import temporary_folder

# Kernels that compute on integers; those that only move values are not included.
INTEGER_KERNELS = frozenset({
    "DynamicQuantizeLSTM", "DynamicQuantizeMatMul", "GatherBlockQuantized", "MatMulInteger", "MatMulIntegerToFloat",
    "MatMulNBits", "QGemm", "QLinearAdd", "QLinearAveragePool", "QLinearConcat", "QLinearConv",
    "QLinearGlobalAveragePool", "QLinearLeakyRelu", "QLinearMatMul", "QLinearMul", "QLinearReduceMean",
    "QLinearSigmoid", "QLinearSoftmax", "QLinearWhere",
})  # fmt: skip
# Integer kernels that write float.
_FLOAT_WRITERS = (
    "DynamicQuantizeLSTM", "DynamicQuantizeMatMul", "GatherBlockQuantized", "MatMulIntegerToFloat", "MatMulNBits",
)  # fmt: skip
# Passthrough kernels: they compute nothing, but are ops to be decided about.
_PASSTHROUGH_KERNELS = ("Clip", "Pad", "ReduceMax", "ReduceMin", "SpaceToDepth")


def optimised(model: bytes) -> onnx.ModelProto:
    """Return the graph that is executed on this machine."""
    with temporary_folder() as folder:
        path = folder / "optimised.onnx"
        options = sessions.options(1)
        options.optimized_model_filepath = str(path)
        sessions.create(model, options)
        return onnx.load_model(path)


def integer_nodes(model: onnx.ModelProto) -> frozenset[str]:
    """Return the nodes that run in 8 bits under a float kernel's name: lookups, passthrough ops and weight-only ops."""
    kinds = (TensorProto.INT8, TensorProto.UINT8)
    tables = {entry.name for entry in model.graph.initializer if entry.data_type in kinds}
    integers, weights = set(tables), set()
    names = set()
    for node in model.graph.node:
        read = node.input[0] if node.input else ""
        if node.op_type == "QuantizeLinear" or (node.op_type in INTEGER_KERNELS and not _writes_float(node)):
            integers.update(node.output)
        elif node.op_type == "DequantizeLinear" and read in tables:
            weights.update(node.output)
        elif any(name in weights for name in node.input[1:2]):
            names.add(node.name)
        elif read in integers and node.op_type not in (*INTEGER_KERNELS, "DequantizeLinear", "Cast"):
            integers.update(node.output)
            if node.op_type in _PASSTHROUGH_KERNELS or (node.op_type == "Gather" and read in tables):
                names.add(node.name)
    return frozenset(names)


def _writes_float(node: onnx.NodeProto) -> bool:
    """Return True for an integer kernel that scales its result itself; a QGemm without an output scale does."""
    return node.op_type in _FLOAT_WRITERS or (node.op_type == "QGemm" and len(node.input) < 8)


def plain_name(name: str) -> str:
    """Return a node's name without what the optimiser appends to it."""
    return re.sub(r"(_nchwc|_token_\d+|/\w+Fusion/?)+$", "", name)


def integer_kernels(model: bytes, ops: Iterable[str]) -> dict[str, str]:
    """Return the kernel of each of these ops that is executed in integers.

    Kernels that belong to no op are listed under their own names.
    """
    op_names = set(ops)
    kernels: dict[str, str] = {}
    executed = optimised(model)
    carrying = integer_nodes(executed)
    for node in executed.graph.node:
        if node.op_type in INTEGER_KERNELS or node.name in carrying:
            name = node.name if node.name in op_names else plain_name(node.name)
            kernels[name] = node.op_type
    return kernels


def int8_edges(builder: Builder) -> dict[str, tuple[str, ...]]:
    """Return, for each op that writes 8 bits, the ops that read its output, moved or not."""
    readers: dict[str, list[str]] = {}
    for unit in builder.units:
        for name in unit.activations if unit.has_static_choice else ():
            readers.setdefault(builder.root(name), []).append(unit.op.name)
    edges = {}
    for unit in builder.units:
        if unit.quantized_output and not unit.is_embedding:  # rows with a scale each are float32
            reading = dict.fromkeys(readers.get(builder.root(unit.output), ()))
            reading.pop(unit.op.name, None)
            if reading:
                edges[unit.op.name] = tuple(reading)
    return edges
