"""What ONNX Runtime makes of a model: the kernels of the optimised graph, by the ops they came from."""

from __future__ import annotations

import re
from collections.abc import Iterable

import onnx
from onnx import TensorProto

from quaver.adapters.onnxrt.build.builder import Builder
from quaver.adapters.onnxrt.run import session as sessions
from quaver.files.temporary import temporary_folder

# Kernels that compute on integers. Those that only move values about are not among them.
INTEGER_KERNELS = frozenset({
    "DynamicQuantizeLSTM", "DynamicQuantizeMatMul", "GatherBlockQuantized", "MatMulInteger", "MatMulIntegerToFloat",
    "MatMulNBits", "QGemm", "QLinearAdd", "QLinearAveragePool", "QLinearConcat", "QLinearConv",
    "QLinearGlobalAveragePool", "QLinearLeakyRelu", "QLinearMatMul", "QLinearMul", "QLinearReduceMean",
    "QLinearSigmoid", "QLinearSoftmax", "QLinearWhere",
})  # fmt: skip
# Those of them that write float.
_TO_FLOAT = (
    "DynamicQuantizeLSTM", "DynamicQuantizeMatMul", "GatherBlockQuantized", "MatMulIntegerToFloat", "MatMulNBits",
)  # fmt: skip
# What does not compute, but is an op to be decided about.
_CARRYING = ("Clip", "Pad", "ReduceMax", "ReduceMin", "SpaceToDepth")


def optimised(model: bytes) -> onnx.ModelProto:
    """The graph that is really executed on this machine."""
    with temporary_folder() as folder:
        path = folder / "optimised.onnx"
        options = sessions.options(1)
        options.optimized_model_filepath = str(path)
        sessions.create(model, options)
        return onnx.load_model(path)


def integer_nodes(model: onnx.ModelProto) -> frozenset[str]:
    """The nodes that look rows up in a table of 8 bits, hand on what is in 8 bits, or have their weight alone in it."""
    kinds = (TensorProto.INT8, TensorProto.UINT8)
    tables = {entry.name for entry in model.graph.initializer if entry.data_type in kinds}
    integers, weights = set(tables), set()
    found = set()
    for node in model.graph.node:
        read = node.input[0] if node.input else ""
        if node.op_type == "QuantizeLinear" or (node.op_type in INTEGER_KERNELS and not _writes_float(node)):
            integers.update(node.output)
        elif node.op_type == "DequantizeLinear" and read in tables:
            weights.update(node.output)
        elif any(name in weights for name in node.input[1:2]):
            found.add(node.name)
        elif read in integers and node.op_type not in (*INTEGER_KERNELS, "DequantizeLinear", "Cast"):
            integers.update(node.output)
            if node.op_type in _CARRYING or (node.op_type == "Gather" and read in tables):
                found.add(node.name)
    return frozenset(found)


def _writes_float(node: onnx.NodeProto) -> bool:
    """Some integer kernels scale their result by themselves; a QGemm that is not told by what to quantize it, does."""
    return node.op_type in _TO_FLOAT or (node.op_type == "QGemm" and len(node.input) < 8)


def plain_name(name: str) -> str:
    """A node's name without what the optimiser appends to it."""
    return re.sub(r"(_nchwc|_token_\d+|/\w+Fusion/?)+$", "", name)


def integer_kernels(model: bytes, ops: Iterable[str]) -> dict[str, str]:
    """For each of these ops that is executed in integers, its kernel. Kernels of nobody come under their own names."""
    known = set(ops)
    found: dict[str, str] = {}
    executed = optimised(model)
    carrying = integer_nodes(executed)
    for node in executed.graph.node:
        if node.op_type in INTEGER_KERNELS or node.name in carrying:
            name = node.name if node.name in known else plain_name(node.name)
            found[name] = node.op_type
    return found


def int8_edges(builder: Builder) -> dict[str, tuple[str, ...]]:
    """For each op that writes 8 bits, the ops that read what it wrote, moved about or not."""
    readers: dict[str, list[str]] = {}
    for unit in builder.units:
        for name in unit.activations if unit.has_static_choice else ():
            readers.setdefault(builder.root(name), []).append(unit.op.name)
    found = {}
    for unit in builder.units:
        if unit.quantized_output and not unit.is_embedding:  # rows with a scale each are float
            reading = dict.fromkeys(readers.get(builder.root(unit.output), ()))
            reading.pop(unit.op.name, None)
            if reading:
                found[unit.op.name] = tuple(reading)
    return found
