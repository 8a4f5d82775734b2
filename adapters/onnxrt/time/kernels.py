"""What ONNX Runtime makes of a model: the kernels of the optimised graph, by the ops they came from."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable
from pathlib import Path

import onnx

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


def plain_name(name: str) -> str:
    """A node's name without what the optimiser appends to it."""
    return re.sub(r"(_nchwc|_token_\d+)+$", "", name)


def integer_kernels(model: bytes, ops: Iterable[str]) -> dict[str, str]:
    """For each of these ops that is executed in integers, its kernel. Kernels of nobody come under their own names."""
    known = set(ops)
    found: dict[str, str] = {}
    for node in optimised(model).graph.node:
        if node.op_type in INTEGER_KERNELS:
            name = node.name if node.name in known else plain_name(node.name)
            found[name] = node.op_type
    return found
