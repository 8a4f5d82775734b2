"""Small real networks, and a score that needs no labels: how near a model's outputs are to the float model's."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

WIDTH = 24


def chain(layers: int = 6, seed: int = 0) -> onnx.ModelProto:
    """Gemm and Relu, alternating; the ops are called "layer.0/Gemm" and so on."""
    random = np.random.default_rng(seed)
    nodes, constants, last = [], [], "x"
    for index in range(layers):
        weight = (random.standard_normal((WIDTH, WIDTH)) / np.sqrt(WIDTH / 2)).astype(np.float32)
        bias = (random.standard_normal(WIDTH) / 10).astype(np.float32)
        constants += [numpy_helper.from_array(weight, f"w{index}"), numpy_helper.from_array(bias, f"b{index}")]
        name = f"layer.{index}/Gemm"
        nodes.append(helper.make_node("Gemm", [last, f"w{index}", f"b{index}"], [name], name))
        last = name
        if index < layers - 1:
            nodes.append(helper.make_node("Relu", [name], [f"layer.{index}/Relu"], f"layer.{index}/Relu"))
            last = f"layer.{index}/Relu"
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", WIDTH]) for name in ("x", last)]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def inputs(count: int = 64, seed: int = 1) -> NDArray[np.float32]:
    """Samples for any chain."""
    return np.random.default_rng(seed).standard_normal((count, WIDTH)).astype(np.float32)


class Closeness:
    """An `eval_func`: 1 minus the relative error at the outputs, compared with the float model's."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._samples = inputs(seed=2)
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        self._reference = session.run(None, {"x": self._samples})[0]

    def __call__(self, model: Any) -> float:
        return 1 - float(np.abs(model(self._samples) - self._reference).mean() / np.abs(self._reference).mean())
