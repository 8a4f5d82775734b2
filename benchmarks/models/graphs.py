"""Writes ONNX graphs from weights by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks.models.bench import Array


class Network:
    """A graph under construction. Nodes that name a weight as an input get it."""

    def __init__(self, weights: Mapping[str, Array]) -> None:
        self.weights = weights
        self._nodes: list[onnx.NodeProto] = []
        self._used: dict[str, Array] = {}

    def add(self, kind: str, inputs: Sequence[str], name: str, **attributes: Any) -> str:
        """A node; its output bears its name."""
        self._used |= {source: self.weights[source] for source in inputs if source in self.weights}
        self._nodes.append(helper.make_node(kind, inputs, [name], name=name, **attributes))
        return name

    def norm(self, x: str, name: str, epsilon: float) -> str:
        """A BatchNormalization; its weights are called as torch does."""
        statistics = [f"{name}.{part}" for part in ("weight", "bias", "running_mean", "running_var")]
        return self.add("BatchNormalization", [x, *statistics], name, epsilon=epsilon)

    def model(self, name: str, image: Sequence[int], output: str, width: int) -> onnx.ModelProto:
        """Return the finished graph, from pictures of this shape to a number of values, for any number of pictures."""
        source = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", *image])
        target = helper.make_tensor_value_info(output, TensorProto.FLOAT, ["batch", width])
        constants = [numpy_helper.from_array(np.asarray(value), key) for key, value in self._used.items()]
        graph = helper.make_graph(self._nodes, name, [source], [target], constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
