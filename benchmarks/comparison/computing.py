"""How many of a model's convolutions and matrix products really run on integers, whatever tool made it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from quaver.adapters.onnxrt.profile.kernels import INTEGER_KERNELS, optimised
from quaver.adapters.openvino.execution_graph import kernels_of
from quaver.ops import INT8

# Kernels of the optimised graph that do the heavy work; those on integers are named otherwise.
_FLOAT = {"Conv", "FusedConv", "ConvTranspose", "MatMul", "FusedMatMul", "Gemm", "FusedGemm", "Einsum", "Attention"}
_INTEGER = {name for name in INTEGER_KERNELS if "Conv" in name or "MatMul" in name or "Gemm" in name} | {
    "ConvInteger",
    "DynamicQuantizeMatMul",
    "MatMulInteger",
    "QAttention",
}
_LITERT = {"CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "BATCH_MATMUL", "TRANSPOSE_CONV"}
_OPENVINO = {"Convolution", "Deconvolution", "FullyConnected", "MatMul"}


@dataclass(frozen=True, slots=True)
class Computing:
    """Counts of the heavy ops."""

    fp32: int
    int8: int


def computing(model: Path, session: Any = None) -> Computing:
    """Count in the graph that is executed. Float ops of any precision count as fp32.

    Args:
        model: the model file.
        session: the opened model, which is needed if OpenVINO runs it.
    """
    if hasattr(session, "compiled"):
        kernels = [kernel for kernel in kernels_of(session.compiled) if kernel.kind in _OPENVINO]
        integers = [kernel.precision == INT8 for kernel in kernels]
    else:
        integers = _litert(model) if model.suffix == ".tflite" else _onnx(model)
    return Computing(integers.count(False), integers.count(True))


def _onnx(model: Path) -> list[bool]:
    nodes = [node.op_type for node in optimised(model.read_bytes()).graph.node]
    return [kind in _INTEGER for kind in nodes if kind in _FLOAT | _INTEGER]


def _litert(model: Path) -> list[bool]:
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    interpreter = Interpreter(
        model_path=str(model), experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    )
    types = {detail["index"]: detail["dtype"] for detail in interpreter.get_tensor_details()}
    ops = [op for op in interpreter._get_ops_details() if op["op_name"] in _LITERT]
    return [types[int(op["inputs"][0])] is np.int8 for op in ops]
