"""What the integers of MXNet stand for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from quaver.adapters.mxnet.load.graph import Graph, Node
from quaver.affine import QuantizationParameters, QuantizedTensor
from quaver.types import Array

Seen = Array | QuantizedTensor

# The largest integer that is used. All are symmetric: of int8 -128 is left out.
_STEPS = {"int8": 127, "uint8": 255, "int32": 2**31 - 1}


def seen(values: Sequence[Array]) -> Seen:
    """A tensor as a node gave it: in float, or in integers followed by the ends of the range they stand for."""
    if len(values) == 1 or values[0].dtype.kind == "f":
        return values[0]
    tensor, low, high = values
    return QuantizedTensor(tensor, parameters(tensor.dtype, float(low.min()), float(high.max())))


def parameters(dtype: Any, low: float, high: float) -> QuantizationParameters:
    """Scale and zero point: zero is 0, and the larger end of the range is the largest integer."""
    scale = max(abs(low), abs(high)) / _STEPS[np.dtype(dtype).name]
    return QuantizationParameters(np.asarray(scale, np.float32), np.asarray(0, dtype))


PREFIX = "quantized_"
QUANTIZING, DEQUANTIZING = "_contrib_quantize_v2", "_contrib_dequantize"
Range = tuple[float, float]


class QuantizedGraph(Graph):
    """Its nodes in int8 are called after those of the float graph; the integers they give stand for a known range."""

    def quantized(self, op: str) -> Node | None:
        """The node that runs an op in int8; None if it is in fp32."""
        return self.by_name.get(PREFIX + op)

    def range_of(self, node: Node) -> Range:
        """The range that the integers of a node stand for: its own, or that of what it passes on."""
        if "min_calib_range" in node.attributes:
            return float(node.attributes["min_calib_range"]), float(node.attributes["max_calib_range"])
        read = self.integers_read(node)
        ends = [self.range_of(one) for one in (read if "concat" in node.operator else read[:1])]
        return min(low for low, _ in ends), max(high for _, high in ends)

    def integers_read(self, node: Node) -> list[Node]:
        """The nodes whose integers a node reads, once each."""
        found = dict.fromkeys(at for at, output in node.inputs if output == 0 and at in self.nodes)
        return [self.nodes[at] for at in found]

    def float_source(self, node: Node) -> str:
        """The node or variable of the float graph that gives in float what this one gives in integers."""
        if node.operator in (QUANTIZING, DEQUANTIZING):
            at = node.inputs[0][0]
            return self.variables[at] if at in self.variables else self.float_source(self.nodes[at])
        return node.name.removeprefix(PREFIX)
