"""What ONNX Runtime makes of a model: the kernels of the optimised graph, by the ops they came from."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable
from pathlib import Path

import onnx
from onnx import TensorProto

from quaver.adapters.onnxrt.run import session as sessions

# Kernels that compute on integers. Those that only move values about are not among them.
INTEGER_KERNELS = frozenset({
    "MatMulIntegerToFloat", "QGemm", "QLinearAdd", "QLinearAveragePool", "QLinearConcat", "QLinearConv",
    "QLinearGlobalAveragePool", "QLinearLeakyRelu", "QLinearMatMul", "QLinearMul", "QLinearReduceMean",
    "QLinearSigmoid", "QLinearSoftmax", "QLinearWhere",
})  # fmt: skip


def optimised(model: bytes) -> onnx.ModelProto:
    """The graph that is really executed on this machine."""
    with tempfile.TemporaryDirectory(prefix="quaver-") as folder:
        path = Path(folder) / "optimised.onnx"
        options = sessions.options(1)
        options.optimized_model_filepath = str(path)
        sessions.create(model, options)
        return onnx.load_model(path)


def lookups(model: onnx.ModelProto) -> frozenset[str]:
    """The nodes that look rows up in a table of 8 bits."""
    tables = {
        entry.name for entry in model.graph.initializer if entry.data_type in (TensorProto.INT8, TensorProto.UINT8)
    }
    return frozenset(node.name for node in model.graph.node if node.op_type == "Gather" and node.input[0] in tables)


def plain_name(name: str) -> str:
    """A node's name without what the optimiser appends to it."""
    return re.sub(r"(_nchwc|_token_\d+)+$", "", name)


def integer_kernels(model: bytes, ops: Iterable[str]) -> dict[str, str]:
    """For each of these ops that is executed in integers, its kernel. Kernels of nobody come under their own names."""
    known = set(ops)
    found: dict[str, str] = {}
    executed = optimised(model)
    in_tables = lookups(executed)
    for node in executed.graph.node:
        if node.op_type in INTEGER_KERNELS or node.name in in_tables:
            name = node.name if node.name in known else plain_name(node.name)
            found[name] = node.op_type
    return found
