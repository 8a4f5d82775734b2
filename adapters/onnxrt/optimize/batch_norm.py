"""BatchNormalization behind a Relu: there is no convolution to fold it into but the next one.

Relu(s x) = s Relu(x) for s > 0. So the magnitudes of the factors go back into the convolution before, and their signs
go
into the next layer, whose int8 input keeps the ranges that the normalization gave it. The shifts go into its bias.
Where that layer pads its input with zeros, no bias can imitate a shift. The convolution before then gets one more
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
    scaled_weight,
    set_weights,
)
from quaver.types import Array

_POOLS = ("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool")
# Judgement: mean and this many standard deviations are about the largest value that a normalization has met.
_DEVIATIONS = 4.0
# Float kernels compute whole blocks of channels. Judgement: one more channel may make a convolution 1.5 times as large.
_BLOCK, _MAX_WASTE = 16, 1.5


@dataclass(frozen=True, slots=True)
class _NormFold:
    """A normalization, the convolution and activation before it, and the nodes up to the layer behind it."""

    conv: NodeProto
    norm: NodeProto
    between: list[NodeProto]
    layer: NodeProto


def fold_norm_behind_relu(graph: Graph) -> int:
    """Drop BatchNormalization (or Mul and Add of channels) between Relu and the next layer; return how many."""
    count = 0
    for node in list(graph.nodes):
        fold = _place(graph, node)
        if fold is not None and _fold(graph, fold):
            count += 1
    return count


def _place(graph: Graph, norm: NodeProto) -> _NormFold | None:
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
    return _NormFold(conv, norm, between, node) if flat == (node.op_type != "Conv") else None


def _fold(graph: Graph, fold: _NormFold) -> bool:
    conv, layer = fold.conv, fold.layer
    weight = graph.constants[conv.input[1]]
    channels = len(weight)
    source = next(name for name in fold.norm.input if name not in graph.constants)
    affine = scale_and_shift(graph, fold.norm, source, channels, weight.ndim)
    if affine is None:
        return False
    scale, shift = affine
    if np.any(scale < 0) and any(step.op_type in ("MaxPool", "GlobalMaxPool") for step in fold.between):
        return False
    width = input_channels(graph, layer)
    if width % channels or (layer.op_type == "Conv" and width != channels):
        return False
    signs = np.where(scale < 0, -1.0, 1.0)
    wide, bias = scaled_weight(weight, np.abs(scale), conv), bias_of(graph, conv, channels) * np.abs(scale)
    label = fold.norm.output[0]
    if np.any(shift != 0) and _meets_padding(fold):
        grouped = integer(conv, "group", 1) != 1 or integer(layer, "group", 1) != 1
        if layer.op_type != "Conv" or grouped or _waste(channels) > _MAX_WASTE:
            return False
        constant = _carry_shift(graph, fold, signs, shift, label)
        wide, bias = np.concatenate([wide, np.zeros((1, *wide.shape[1:]))]), np.append(bias, constant)
    else:
        each = width // channels  # places of a channel behind a Flatten
        if not scale_inputs(graph, layer, np.repeat(signs, each), np.repeat(shift, each), label):
            return False
    set_weights(graph, conv, f"{label}.before", wide, bias)
    remove_node(graph, fold.norm, conv)
    return True


def _meets_padding(fold: _NormFold) -> bool:
    """Return True if the shifted tensor is padded with zeros before the layer. Those of a MaxPool never win."""
    return any(_counts_zeros(step) for step in fold.between) or (
        fold.layer.op_type == "Conv" and has_padding(fold.layer)
    )


def _counts_zeros(pool: NodeProto) -> bool:
    if pool.op_type != "AveragePool" or not integer(pool, "count_include_pad", 0):
        return False
    return has_padding(pool) or bool(integer(pool, "ceil_mode", 0))


def _waste(channels: int) -> float:
    """Return how much more a float convolution computes for one channel more: it computes whole blocks."""
    return -(-(channels + 1) // _BLOCK) * _BLOCK / (-(-channels // _BLOCK) * _BLOCK)


def _carry_shift(graph: Graph, fold: _NormFold, signs: Array, shift: Array, label: str) -> float:
    """Give the next convolution the weights of one more channel, which carries the shift, and return its number.

    The number is the smallest at which these weights are no larger than the other ones, but not larger than the values
    of
    other channels, as far as the normalization knows them. So it spoils neither scale.
    """
    weight = graph.constants[fold.layer.input[1]].astype(np.float64)
    view = (1, -1, *[1] * (weight.ndim - 2))
    carried = (weight * shift.reshape(view)).sum(axis=1, keepdims=True)
    beside = np.abs(weight).reshape(len(weight), -1).max(axis=1)
    needed = np.abs(carried).reshape(len(weight), -1).max(axis=1) / np.maximum(beside, 1e-12)
    constant = max(min(float(needed.max()), _largest(graph, fold.norm)), 1e-6)
    wide = np.concatenate([weight * signs.reshape(view), carried / constant], axis=1)
    set_weights(graph, fold.layer, label, wide, bias_of(graph, fold.layer, len(weight)))
    return constant


def _largest(graph: Graph, norm: NodeProto) -> float:
    """Return about the largest value before a normalization, scaled as it scales."""
    if norm.op_type != "BatchNormalization":
        return float("inf")
    gamma, _, mean, variance = (graph.constants[name].astype(np.float64) for name in norm.input[1:5])
    return float((np.abs(gamma) / np.sqrt(variance + 1e-12) * (np.abs(mean) + _DEVIATIONS * np.sqrt(variance))).max())
