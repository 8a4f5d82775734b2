"""HardSigmoid right behind a layer: its slope and shift go into the weights, and what is left of it is a Clip.

In fp32 either is joined with the convolution. In int8 a Clip that starts at zero costs nothing, because quantizing to
uint8 does the clipping, while HardSigmoid has no integer kernel.
"""

from __future__ import annotations

import numpy as np
from onnx import NodeProto, helper

from quaver.adapters.onnxrt.read.channelwise import bias_of, scaled, set_weights
from quaver.adapters.onnxrt.read.graph import Graph, integer, real
from quaver.adapters.onnxrt.read.rewrites.editing import inner_maker, replace
from quaver.adapters.onnxrt.read.rewrites.layers import takes_weights


def clip_behind_layers(graph: Graph) -> int:
    """Make a Clip of each HardSigmoid that alone reads a Conv or Gemm. Returns how many there were."""
    count = 0
    for node in [node for node in graph.nodes if node.op_type == "HardSigmoid" and not node.domain]:
        layer = inner_maker(graph, node.input[0], "Conv", "Gemm")
        if layer is not None and takes_weights(graph, layer):
            _rewrite(graph, layer, node)
            count += 1
    return count


def _rewrite(graph: Graph, layer: NodeProto, node: NodeProto) -> None:
    slope, shift = real(node, "alpha", 0.2), real(node, "beta", 0.5)
    weight = graph.constants[layer.input[1]]
    channels = len(weight) if layer.op_type == "Conv" or integer(layer, "transB", 0) else weight.shape[1]
    wide = scaled(weight, np.full(channels, slope), layer) if layer.op_type == "Conv" else weight * np.float64(slope)
    set_weights(graph, layer, node.output[0], wide, bias_of(graph, layer, channels) * slope + shift)
    limits = [graph.free_name(f"{node.output[0]}.{part}") for part in ("low", "high")]
    for name, value in zip(limits, (0.0, 1.0), strict=True):
        graph.constants[name] = np.array(value, np.float32)
    clip = helper.make_node("Clip", [node.input[0], *limits], [node.output[0]], name=node.name)
    replace(graph, [node], [clip])
