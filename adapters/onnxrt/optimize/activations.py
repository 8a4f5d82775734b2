"""Activations: hard-swish and PRelu in the form that has int8 kernels, and HardSigmoid folded into the layer before it.

A HardSigmoid behind a layer becomes a Clip: its slope and shift go into the weights. In fp32 either is fused with the
convolution. In int8 a Clip that starts at zero costs nothing, because quantizing to uint8 does the clipping, while
HardSigmoid has no integer kernel.
"""

from __future__ import annotations

import numpy as np
from onnx import NodeProto, helper

from quaver.adapters.onnxrt.load.graph import Graph, integer, real
from quaver.adapters.onnxrt.optimize.graph_edit import (
    is_close,
    is_float32,
    number,
    operand_and_number,
    producer,
    removable_chain,
    removable_producer,
    replace_nodes,
    scaling_factor,
)
from quaver.adapters.onnxrt.optimize.layers import bias_of, is_foldable_layer, scaled_weight, set_weights


def clip_behind_layers(graph: Graph) -> int:
    """Make a Clip of each HardSigmoid that is the only reader of a Conv or Gemm, and return how many there were."""
    count = 0
    for node in [node for node in graph.nodes if node.op_type == "HardSigmoid" and not node.domain]:
        layer = removable_producer(graph, node.input[0], "Conv", "Gemm")
        if layer is not None and is_foldable_layer(graph, layer):
            _clip_behind_layer(graph, layer, node)
            count += 1
    return count


def _clip_behind_layer(graph: Graph, layer: NodeProto, node: NodeProto) -> None:
    slope, shift = real(node, "alpha", 0.2), real(node, "beta", 0.5)
    weight = graph.constants[layer.input[1]]
    channels = len(weight) if layer.op_type == "Conv" or integer(layer, "transB", 0) else weight.shape[1]
    wide = (
        scaled_weight(weight, np.full(channels, slope), layer)
        if layer.op_type == "Conv"
        else weight * np.float64(slope)
    )
    set_weights(graph, layer, node.output[0], wide, bias_of(graph, layer, channels) * slope + shift)
    limits = [graph.free_name(f"{node.output[0]}.{part}") for part in ("low", "high")]
    for name, value in zip(limits, (0.0, 1.0), strict=True):
        graph.constants[name] = np.array(value, np.float32)
    clip = helper.make_node("Clip", [node.input[0], *limits], [node.output[0]], name=node.name)
    replace_nodes(graph, [node], [clip])


def recognise_hard_swish(graph: Graph) -> int:
    """Replace the nodes that spell out HardSigmoid(x) or x * HardSigmoid(x), and return how many chains there were."""
    count = 0
    for clip in [node for node in graph.nodes if node.op_type == "Clip" and not node.domain]:
        count += _hard_swish(graph, clip)
    return count


def _hard_swish(graph: Graph, clip: NodeProto) -> bool:
    addition = producer(graph, clip.input[0], "Add")
    shifted = None if addition is None else operand_and_number(graph, addition)
    height = _height(graph, clip)
    if addition is None or shifted is None or height is None or not is_float32(graph, shifted[0]):
        return False
    x, shift = shifted
    product, behind = _times_x(graph, clip, x, 1 / height)
    chain = removable_chain(graph, [addition, clip, *behind]) if behind else None
    if chain is None:
        return False
    sigmoid = helper.make_node(
        "HardSigmoid", [x], [behind[-1].output[0]], name=clip.name, alpha=1 / height, beta=shift / height
    )
    new = [sigmoid]
    if product is not None:
        sigmoid.output[0] = graph.free_name(f"{behind[-1].output[0]}.gate")
        new.append(helper.make_node("Mul", [x, sigmoid.output[0]], [behind[-1].output[0]], name=product.name))
    replace_nodes(graph, chain, new)
    return True


def _height(graph: Graph, clip: NodeProto) -> float | None:
    """Return the upper end of a Clip that starts at zero."""
    if len(clip.input) != 3:
        return None
    low, high = (number(graph, name, clip.input[0]) for name in clip.input[1:])
    return high if low == 0.0 and high is not None and high > 0 else None


def _times_x(
    graph: Graph, clip: NodeProto, x: str, factor_of_height: float
) -> tuple[NodeProto | None, list[NodeProto]]:
    """Return the product with x, and all nodes behind a Clip up to the one that completes a HardSigmoid or hard-swish.

    These nodes divide by the height of the Clip, and may multiply with x before or right after that.
    """
    product, nodes, scaled, tip = None, [], False, clip.output[0]
    while not (scaled and product is not None):
        node = graph.only_reader(tip)
        factor = None if node is None else scaling_factor(graph, node)
        if node is None:
            break
        if factor is not None and not scaled and is_close(factor[1], factor_of_height):
            scaled = True
        elif product is None and node.op_type == "Mul" and sorted(node.input) == sorted([x, tip]):
            product = node
        else:
            break
        nodes.append(node)
        tip = node.output[0]
    return (product, nodes) if scaled else (None, [])


# Since this opset the bounds of a Clip are inputs, and one may be left out (ONNX operator specification).
OPSET = 11


def spell_out_prelu(graph: Graph) -> int:
    """Replace each PRelu that has constant slopes, and return how many there were."""
    nodes = [node for node in graph.nodes if node.op_type == "PRelu" and not node.domain]
    return sum(_spell_out(graph, node) for node in nodes if is_float32(graph, node.input[0]))


def _spell_out(graph: Graph, node: NodeProto) -> bool:
    x, slopes = node.input
    slope = number(graph, slopes, x)
    if slope is not None:
        replace_nodes(
            graph, [node], [helper.make_node("LeakyRelu", [x], [node.output[0]], name=node.name, alpha=slope)]
        )
        return True
    slope_values = graph.constants.get(slopes)
    if (
        slope_values is None
        or slope_values.dtype != np.float32
        or not np.isfinite(slope_values).all()
        or graph.opset < OPSET
    ):
        return False
    if slope_values.ndim > graph.ranks.get(x, 0):
        return False
    zero, above, below, scaled = (
        graph.free_name(f"{node.output[0]}.{part}") for part in ("zero", "above", "below", "scaled")
    )
    graph.constants[zero] = np.array(0, np.float32)
    new = [
        helper.make_node("Relu", [x], [above], name=f"{node.name}.above"),
        helper.make_node("Clip", [x, "", zero], [below], name=f"{node.name}.below"),
        helper.make_node("Mul", [below, slopes], [scaled], name=f"{node.name}.scaled"),
        helper.make_node("Add", [above, scaled], [node.output[0]], name=node.name),
    ]
    replace_nodes(graph, [node], new)
    return True
