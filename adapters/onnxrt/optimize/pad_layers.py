"""Padding with zeros, moved into the convolutions behind it.

The runtime does this for a Pad right before one convolution. Here it may also be read by several convolutions, or have
Transpose, Squeeze, Unsqueeze and ops that keep zeros (Relu, a factor) behind it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from onnx import NodeProto, helper

from quaver.adapters.onnxrt.load.graph import Graph, attribute
from quaver.adapters.onnxrt.load.shape_inference import Dimensions, dimensions, infer_types
from quaver.adapters.onnxrt.optimize.graph_edit import keep_loadable
from quaver.adapters.onnxrt.optimize.past_moves import dropped_axes, fills_with_zeros, transposed_axes
from quaver.types import Array

# Ops whose result is zero where their input is zero.
_KEEP_ZEROS = ("Relu", "LeakyRelu", "Elu", "Gelu", "HardSwish", "Tanh", "Mul", "Div")
# A bound for hostile models: real ones have few ops between a Pad and its convolution.
_MAX_OPS = 16

# The places added before and behind each axis: an array of two rows.
_Pads = Array


@dataclass(frozen=True, slots=True)
class _Padded:
    """A convolution behind a Pad, and the places that the Pad adds at each axis of what it reads."""

    conv: NodeProto
    pads: _Pads


def fold_padding(graph: Graph) -> int:
    """Move each Pad with zeros into all convolutions that read it, and return how many Pads went."""
    pads = [node for node in graph.nodes if node.op_type == "Pad" and node.domain in ("", "ai.onnx")]
    dims = dimensions(graph) if pads else {}
    count = sum(_fold(graph, dims, pad) for pad in pads)
    if count:
        keep_loadable(graph)
        infer_types(graph)  # what lies between a Pad and its convolution is smaller now
    return count


def _fold(graph: Graph, dims: Dimensions, pad: NodeProto) -> bool:
    values = graph.constants.get(pad.input[1]) if len(pad.input) in (2, 3) else None
    if values is None or values.size % 2 or np.any(values < 0) or not fills_with_zeros(graph, pad):
        return False
    layers = _layers_behind(graph, dims, pad.output[0], values.reshape(2, -1))
    if layers is None or not all(_can_pad(layer) for layer in layers):
        return False
    for layer in layers:
        _pad(layer)
    for index in graph.consumers[pad.output[0]]:
        reader = graph.nodes[index]
        for slot, name in enumerate(reader.input):
            if name == pad.output[0]:
                reader.input[slot] = pad.input[0]
    graph.nodes = [other for other in graph.nodes if other is not pad]
    graph.merge(layers[0].conv.name, pad.name)
    graph.index()
    return True


def _layers_behind(graph: Graph, dims: Dimensions, name: str, pads: _Pads) -> list[_Padded] | None:
    """Return the convolutions that read a padded tensor; None if anything else does that padding would change."""
    layers: list[_Padded] = []
    waiting, seen = [(name, pads)], 0
    while waiting:
        tip, pads = waiting.pop()
        readers = [graph.nodes[index] for index in graph.consumers.get(tip, [])]
        seen += len(readers)
        if not readers or tip in graph.pinned or seen > _MAX_OPS:
            return None
        for reader in readers:
            if reader.op_type == "Conv" and reader.domain in ("", "ai.onnx") and list(reader.input).count(tip) == 1:
                if reader.input[0] != tip:
                    return None
                layers.append(_Padded(reader, pads))
                continue
            behind = _pads_behind(graph, dims, reader, tip, pads)
            if behind is None:
                return None
            waiting.append((reader.output[0], behind))
    return layers


def _pads_behind(graph: Graph, dims: Dimensions, op: NodeProto, tip: str, pads: _Pads) -> _Pads | None:
    """Return the places added to the result of an op, if it moves zeros or keeps them; else None."""
    if (
        op.domain not in ("", "ai.onnx")
        or len(op.output) != 1
        or op.input[0] != tip
        or pads.shape[1] != len(dims.get(tip, ()))
    ):
        return None
    if op.op_type == "Transpose":
        return pads[:, transposed_axes(op, pads.shape[1])]
    if op.op_type in ("Squeeze", "Unsqueeze"):
        if op.op_type == "Squeeze" and len(op.input) < 2:
            return None  # it drops whatever axes have one place, perhaps more of them without the Pad
        longer = dims.get(tip if op.op_type == "Squeeze" else op.output[0])
        axes = None if longer is None else dropped_axes(graph, op, longer)
        if axes is None:
            return None
        if op.op_type == "Unsqueeze":
            kept = [axis for axis in range(pads.shape[1] + len(axes)) if axis not in axes]
            wide = np.zeros((2, len(kept) + len(axes)), pads.dtype)
            wide[:, kept] = pads
            return wide
        return None if pads[:, axes].any() else np.delete(pads, axes, axis=1)
    if op.op_type not in _KEEP_ZEROS:
        return None
    others = [graph.constants.get(name) for name in op.input[1:]]
    # A constant with a place for each padded one would not fit any more.
    fits = all(
        value is not None
        and value.size == 1
        and value.ndim <= pads.shape[1]
        and np.all(np.isfinite(value))
        and np.all(value != 0)
        for value in others
    )
    return pads if fits else None


def _can_pad(layer: _Padded) -> bool:
    automatic = attribute(layer.conv, "auto_pad")
    is_explicit = automatic is None or automatic.s in (b"NOTSET", b"VALID", b"")
    return is_explicit and layer.pads.shape[1] > 2 and not layer.pads[:, :2].any()


def _pad(layer: _Padded) -> None:
    """Add places to the padding of a convolution."""
    own = attribute(layer.conv, "pads")
    added = layer.pads[:, 2:].reshape(-1)
    total = added if own is None or not own.ints else added + np.array(own.ints)
    kept = [entry for entry in layer.conv.attribute if entry.name not in ("pads", "auto_pad")]
    del layer.conv.attribute[:]
    layer.conv.attribute.extend(kept)
    layer.conv.attribute.append(helper.make_attribute("pads", [int(size) for size in total]))
