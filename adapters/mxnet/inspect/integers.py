"""Scales and real values of MXNet's integer tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from quaver.adapters.mxnet.load.graph import Graph, Node
from quaver.affine import QuantizationParameters, QuantizedTensor
from quaver.types import Array

TensorValue = Array | QuantizedTensor

# The largest integer of each type. Ranges are symmetric, so int8 does not use -128.
_STEPS = {"int8": 127, "uint8": 255, "int32": 2**31 - 1}


def seen(values: Sequence[Array]) -> TensorValue:
    """Return a node's output: a float array, or integers followed by the ends of the range that they represent."""
    if len(values) == 1 or values[0].dtype.kind == "f":
        return values[0]
    tensor, low, high = values
    return QuantizedTensor(tensor, parameters(tensor.dtype, float(low.min()), float(high.max())))


def parameters(dtype: Any, low: float, high: float) -> QuantizationParameters:
    """Return scale and zero point: zero is 0, and the larger end of the range is the largest integer."""
    scale = max(abs(low), abs(high)) / _STEPS[np.dtype(dtype).name]
    return QuantizationParameters(np.asarray(scale, np.float32), np.asarray(0, dtype))


QUANTIZED_PREFIX = "quantized_"
QUANTIZE_OPERATOR, DEQUANTIZE_OPERATOR = "_contrib_quantize_v2", "_contrib_dequantize"
Range = tuple[float, float]


class QuantizedGraph(Graph):
    """A quantized graph. Its int8 nodes are named after those of the float graph."""

    def quantized(self, op: str) -> Node | None:
        """Return the node that runs an op in int8; None if it is in fp32."""
        return self.by_name.get(QUANTIZED_PREFIX + op)

    def range_of(self, node: Node) -> Range:
        """Return the range that a node's integers represent: its own, or that of its input."""
        if "min_calib_range" in node.attributes:
            return float(node.attributes["min_calib_range"]), float(node.attributes["max_calib_range"])
        sources = self.integers_read(node)
        ends = [self.range_of(source) for source in (sources if "concat" in node.operator else sources[:1])]
        return min(low for low, _ in ends), max(high for _, high in ends)

    def integers_read(self, node: Node) -> list[Node]:
        """Return the nodes whose integers a node reads, once each."""
        indices = dict.fromkeys(at for at, output in node.inputs if output == 0 and at in self.nodes)
        return [self.nodes[at] for at in indices]

    def float_source(self, node: Node) -> str:
        """Return the node or variable of the float graph that computes this node's integers in float."""
        if node.operator in (QUANTIZE_OPERATOR, DEQUANTIZE_OPERATOR):
            at = node.inputs[0][0]
            return self.variables[at] if at in self.variables else self.float_source(self.nodes[at])
        return node.name.removeprefix(QUANTIZED_PREFIX)
