"""BatchNormalization behind a Relu: no convolution is left to fold it into but the next one.

Relu(s x) = s Relu(x) for s > 0, so the sizes of the factors go back into the convolution before, and their signs go
ahead into the next layer: its int8 input has the ranges that the normalization gave it. The shifts go ahead into its
bias. Where that layer pads its input with zeros, which no bias can imitate, the convolution before gets one more
channel that is always the same number: it is padded with zeros as well, and carries the shift with it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from onnx import NodeProto

from quaver.adapters.onnxrt.load.graph import Graph, integer
from quaver.adapters.onnxrt.optimize.graph_edit import removable_producer, remove_node
from quaver.adapters.onnxrt.optimize.layers import (
    bias_of,
    has_constant_weights,
    has_padding,
    input_channels,
    is_foldable_layer,
    scale_and_shift,
    scale_inputs,
    scaled,
    set_weights,
)
from quaver.types import Array

_POOLS = ("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool")
# Mean and this many standard deviations: about the largest value that a normalization has met.
_DEVIATIONS = 4.0
# Channels of a block in float kernels, and how much larger one more channel may make a convolution.
_BLOCK, _MOST_WASTE = 16, 1.5


@dataclass(frozen=True, slots=True)
class _Place:
    """A normalization, the convolution and activation before it, and the way to the layer behind it."""

    conv: NodeProto
    norm: NodeProto
    between: list[NodeProto]
    layer: NodeProto


def fold_norm_behind_relu(graph: Graph) -> int:
    """Drop BatchNormalization (or Mul and Add of channels) between Relu and the next layer. Returns how many went."""
    count = 0
    for node in list(graph.nodes):
        place = _place(graph, node)
        if place is not None and _fold(graph, place):
            count += 1
    return count


def _place(graph: Graph, norm: NodeProto) -> _Place | None:
    if norm.op_type not in ("BatchNormalization", "Mul", "Add", "Sub", "Div") or norm.domain not in ("", "ai.onnx"):
        return None
    source = next((name for name in norm.input if name not in graph.constants), "")
    relu = removable_producer(graph, source, "Relu", "LeakyRelu")
    conv = None if relu is None else removable_producer(graph, relu.input[0], "Conv")
    if conv is None or not has_constant_weights(graph, conv):
        return None
    between, name = [], norm.output[0]
    while (node := graph.only_reader(name)) is not None and node.op_type in (*_POOLS, "Flatten") and not node.domain:
        if len(node.output) > 1 or (node.op_type == "Flatten" and integer(node, "axis", 1) != 1):
            return None
        between.append(node)
        name = node.output[0]
    if node is None or not is_foldable_layer(graph, node) or node.input[0] != name:
        return None
    flat = any(step.op_type == "Flatten" for step in between)
    return _Place(conv, norm, between, node) if flat == (node.op_type != "Conv") else None


def _fold(graph: Graph, place: _Place) -> bool:
    conv, layer = place.conv, place.layer
    weight = graph.constants[conv.input[1]]
    channels = len(weight)
    source = next(name for name in place.norm.input if name not in graph.constants)
    found = scale_and_shift(graph, place.norm, source, channels, weight.ndim)
    if found is None:
        return False
    scale, shift = found
    if np.any(scale < 0) and any(step.op_type in ("MaxPool", "GlobalMaxPool") for step in place.between):
        return False
    width = input_channels(graph, layer)
    if width % channels or (layer.op_type == "Conv" and width != channels):
        return False
    signs = np.where(scale < 0, -1.0, 1.0)
    wide, bias = scaled(weight, np.abs(scale), conv), bias_of(graph, conv, channels) * np.abs(scale)
    label = place.norm.output[0]
    if np.any(shift != 0) and _meets_padding(place):
        grouped = integer(conv, "group", 1) != 1 or integer(layer, "group", 1) != 1
        if layer.op_type != "Conv" or grouped or _waste(channels) > _MOST_WASTE:
            return False
        constant = _carry_shift(graph, place, signs, shift, label)
        wide, bias = np.concatenate([wide, np.zeros((1, *wide.shape[1:]))]), np.append(bias, constant)
    else:
        each = width // channels  # places of a channel behind a Flatten
        if not scale_inputs(graph, layer, np.repeat(signs, each), np.repeat(shift, each), label):
            return False
    set_weights(graph, conv, f"{label}.before", wide, bias)
    remove_node(graph, place.norm, conv)
    return True


def _meets_padding(place: _Place) -> bool:
    """Whether zeros are put around the shifted tensor on its way. Those of a MaxPool never win."""
    return any(_counts_zeros(step) for step in place.between) or (
        place.layer.op_type == "Conv" and has_padding(place.layer)
    )


def _counts_zeros(pool: NodeProto) -> bool:
    if pool.op_type != "AveragePool" or not integer(pool, "count_include_pad", 0):
        return False
    return has_padding(pool) or bool(integer(pool, "ceil_mode", 0))


def _waste(channels: int) -> float:
    """How much more a float convolution computes for one channel more: it goes by whole blocks."""
    return -(-(channels + 1) // _BLOCK) * _BLOCK / (-(-channels // _BLOCK) * _BLOCK)


def _carry_shift(graph: Graph, place: _Place, signs: Array, shift: Array, label: str) -> float:
    """Give the next convolution the weights of one more channel, which carries the shift; returns its number.

    The number is the smallest at which these weights are no larger than those they stand beside, but not larger than
    the other channels get, as far as the normalization knows: so it spoils neither scale.
    """
    weight = graph.constants[place.layer.input[1]].astype(np.float64)
    view = (1, -1, *[1] * (weight.ndim - 2))
    carried = (weight * shift.reshape(view)).sum(axis=1, keepdims=True)
    beside = np.abs(weight).reshape(len(weight), -1).max(axis=1)
    needed = np.abs(carried).reshape(len(weight), -1).max(axis=1) / np.maximum(beside, 1e-12)
    constant = max(min(float(needed.max()), _largest(graph, place.norm)), 1e-6)
    wide = np.concatenate([weight * signs.reshape(view), carried / constant], axis=1)
    set_weights(graph, place.layer, label, wide, bias_of(graph, place.layer, len(weight)))
    return constant


def _largest(graph: Graph, norm: NodeProto) -> float:
    """About the largest value before a normalization, scaled as it scales."""
    if norm.op_type != "BatchNormalization":
        return float("inf")
    gamma, _, mean, variance = (graph.constants[name].astype(np.float64) for name in norm.input[1:5])
    return float((np.abs(gamma) / np.sqrt(variance + 1e-12) * (np.abs(mean) + _DEVIATIONS * np.sqrt(variance))).max())
