"""An LSTM with int8 weights: ONNX Runtime's DynamicQuantizeLSTM, which takes new ranges at each step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from onnx import NodeProto

from quaver.adapters.onnxrt.build import protobuf
from quaver.adapters.onnxrt.build.affine import Float
from quaver.adapters.onnxrt.build.saturation import bound_pairs, pair_peak
from quaver.adapters.onnxrt.build.weight_store import Entry
from quaver.adapters.onnxrt.ops.unit import Unit
from quaver.ops import OpConfig
from quaver.types import Array

if TYPE_CHECKING:
    from quaver.adapters.onnxrt.build.builder import Builder

# The domain of ONNX Runtime's own operators, and its version.
DOMAIN = ("com.microsoft", 1)
# The number of inputs of an LSTM; the scales and zero points of its weights come behind them.
_INPUTS = 8
# The axis that the kernel sums over in each direction, of a matrix [inputs, 4 units].
_REDUCTION = (0,)


def lstm_parts(
    builder: Builder, unit: Unit, choice: OpConfig, source: str, mark: str
) -> tuple[bytes, tuple[tuple[str, Entry], ...], tuple[str, ...]]:
    """Return the node of an int8 LSTM, its constants by name, and the other constants that it reads."""
    node = NodeProto()
    node.CopyFrom(builder.graph.nodes[unit.anchor])
    inputs = [*node.input, *[""] * (_INPUTS - len(node.input))]
    reads = tuple(name for name in inputs[3:] if name)
    inputs[0], entries = source, []
    for slot, part in ((1, "input weight"), (2, "recurrent weight")):
        name, scale, zero = (
            builder.label(unit.op.name, f"{part} {choice.granularity}{what}") for what in ("", " scale", " zero")
        )
        values, scales = quantized(
            builder.store.array(inputs[slot]), choice.granularity == "per_channel", builder.portable
        )
        entries += [
            (name, builder.store.add_once(name, values)),
            (scale, builder.store.add_once(scale, scales)),
            (zero, builder.store.add_once(zero, np.zeros(scales.shape, np.int8))),
        ]
        inputs[slot] = name
        inputs += [scale, zero]
    del node.input[:]
    node.input.extend(inputs)
    attributes = [
        entry for entry in node.attribute if entry.name != "layout"
    ]  # DynamicQuantizeLSTM has no such attribute: it takes one layout only
    del node.attribute[:]
    node.attribute.extend(attributes)
    for slot, name in enumerate(node.output):
        node.output[slot] = name + mark if name else ""
    node.op_type, node.domain, node.name = "DynamicQuantizeLSTM", DOMAIN[0], node.name + mark
    return protobuf.block(protobuf.GRAPH_NODE, node.SerializeToString(deterministic=True)), tuple(entries), reads


def coarser_lstm_channels(builder: Builder, unit: Unit, per_channel: bool) -> tuple[int, int]:
    """Return how many output channels the weights of an LSTM have, and how many are coarser if `portable`."""
    channels = coarser = 0
    for name in builder.graph.nodes[unit.anchor].input[1:3]:
        weight = builder.store.array(name)
        is_coarser = quantized(weight, per_channel, portable=True)[1] > quantized(weight, per_channel)[1]
        channels += weight.shape[0] * weight.shape[1]
        coarser += round(weight.shape[0] * weight.shape[1] * float(np.mean(is_coarser)))
    return channels, coarser


def quantized(weight: Array, per_channel: bool, portable: bool = False) -> tuple[Array, Float]:
    """Return a weight [directions, 4 units, inputs] as [directions, inputs, 4 units] in int8, and its scales.

    One for each direction, or one for each direction and unit. If `portable`, no sum of it saturates at 16 bits.
    """
    transposed = np.swapaxes(np.asarray(weight, np.float32), 1, 2)
    peak = np.abs(transposed).max(axis=1 if per_channel else (1, 2))
    if portable:
        pairs = np.stack([pair_peak(matrix, 1 if per_channel else None, _REDUCTION) for matrix in transposed])
        peak = np.maximum(peak, pairs)
    scale = np.maximum(peak / np.float32(127), np.finfo(np.float32).tiny).astype(np.float32)
    steps = np.rint(transposed / (scale[:, None, :] if per_channel else scale[:, None, None]))
    values = np.clip(steps, -127, 127).astype(np.int8)
    if portable:
        values = np.stack([bound_pairs(matrix, _REDUCTION) for matrix in values])
    return np.ascontiguousarray(values), scale
