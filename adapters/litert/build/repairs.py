"""Bias correction in a .tflite: it replaces the int32 biases of a quantized file.

The quantizer turns a float model into a file, with nothing in between to change. But this repair changes only biases,
and the file holds the rounded weight that it needs.

"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from quaver.adapters.calibration.channel_statistics import Channels, Statistic
from quaver.adapters.litert.load.graph import Graph, as_list, write
from quaver.adapters.litert.ops.units import Unit
from quaver.adapters.repairs.base import Float, RepairableOp, find_repair, offered_repairs, repaired
from quaver.errors import BuildError
from quaver.ops import QuantConfig
from quaver.repairs import name_of
from quaver.types import Array

# Repairs that change only the bias.
_SUPPORTED = ("bias_correction",)
# Axes of a weight in the order of `RepairableOp.weight`: output channels, input channels of a group, places.
_AXES = {"CONV_2D": (0, 3, 1, 2), "DEPTHWISE_CONV_2D": (3, 0, 1, 2), "FULLY_CONNECTED": (0, 1)}
_LIMIT = 2**31 - 1


def repairable(graph: Graph, unit: Unit) -> RepairableOp | None:
    """Return a unit as repairs see it; None if it has no weight laid out in channels, or no bias."""
    operator, axes = unit.operator, _AXES.get(unit.operator.kind)
    if axes is None or unit.weight is None or len(operator.inputs) < 3:
        return None
    weight, bias = graph.constant(unit.weight), graph.constant(operator.inputs[2])
    shape = as_list(graph.main.tensors[operator.inputs[0]].shape)
    if weight is None or bias is None or not shape or weight.ndim != len(axes):
        return None
    ordered = weight.transpose(axes)
    groups, remainder = divmod(int(shape[-1]), ordered.shape[1])
    if remainder or groups < 1 or ordered.shape[0] % groups or bias.shape != ordered.shape[:1]:
        return None  # its input is flattened first
    if operator.kind == "FULLY_CONNECTED" and groups != 1:
        return None
    return RepairableOp(
        name=unit.op.name,
        kind=unit.op.kind,
        reads=graph.tensor_name(operator.inputs[0]),
        axis=-1,
        weight=np.asarray(ordered, np.float32),
        groups=groups,
        bias=np.asarray(bias, np.float32),
    )


def offered(graph: Graph, unit: Unit) -> tuple[str, ...]:
    """Return the repairs on offer for an op."""
    op = repairable(graph, unit) if any(choice.calibrated for choice in unit.op.choices) else None
    return () if op is None else tuple(spelling for spelling in offered_repairs(op) if spelling in _SUPPORTED)


def with_repairs(
    content: bytes, graph: Graph, units: Sequence[Unit], config: QuantConfig, statistics: Mapping[Statistic, Channels]
) -> bytes:
    """Return a quantized file with repaired biases."""
    repaired_units = [(unit, config[unit.op.name].repairs) for unit in units if config[unit.op.name].repairs]
    if not repaired_units:
        return content
    built = Graph(content)
    for unit, names in repaired_units:
        op = _checked(graph, unit, names, config)
        operator = built.operators[built.writers[built.tensor_at(graph.tensor_name(unit.operator.outputs[0]))]]
        rounded = _dequantized(built, operator.inputs[1]).transpose(_AXES[unit.operator.kind])

        def quantized(weight: Float, values: Float = rounded) -> Float:
            return values

        repaired_op = repaired(op, names, statistics, quantized)
        assert repaired_op.bias is not None
        _set_bias(built, operator.index, repaired_op.bias)
    return write(built.model)


def _checked(graph: Graph, unit: Unit, names: Sequence[str], config: QuantConfig) -> RepairableOp:
    for spelled in names:
        find_repair(spelled)
        op = repairable(graph, unit)
        if op is None or name_of(spelled) not in _SUPPORTED:
            raise BuildError(
                f"op {unit.op.name!r} ({unit.op.kind}) is to be built with repair {spelled!r}, which litert cannot do"
            )
        if not config[unit.op.name].calibrated:
            raise BuildError(
                f"repair {spelled!r} of op {unit.op.name!r} needs calibrated activations, but its mode is "
                f"{config[unit.op.name].mode}"
            )
    assert op is not None
    return op


def _dequantized(built: Graph, tensor: int) -> Float:
    """Return a quantized constant as real numbers."""
    values, entry = built.constant(tensor), built.main.tensors[tensor].quantization
    assert values is not None
    scale = np.asarray(entry.scale, np.float32)
    shape = [1] * values.ndim
    if len(scale) > 1:
        shape[int(entry.quantizedDimension)] = -1
    return np.asarray(values.astype(np.float32) * scale.reshape(shape), np.float32)


def _set_bias(built: Graph, index: int, bias: Float) -> None:
    """Give an operator a bias of its own: others may share its present one."""
    operator, part = built.main.operators[index], built.main
    before = part.tensors[int(operator.inputs[2])]
    steps = bias.astype(np.float64) / np.asarray(before.quantization.scale, np.float64)
    made: Array = np.clip(np.rint(steps), -_LIMIT, _LIMIT).astype(np.int32)
    buffer, tensor = schema.BufferT(), copy.copy(before)
    buffer.data = np.frombuffer(made.tobytes(), np.uint8)
    built.model.buffers.append(buffer)
    tensor.buffer = len(built.model.buffers) - 1
    if len(built.readers[int(operator.inputs[2])]) == 1:
        part.tensors[int(operator.inputs[2])] = tensor
        return
    tensor.name = bytes(before.name or b"") + b"|" + str(index).encode()
    part.tensors.append(tensor)
    inputs = np.array(operator.inputs, np.int32)
    inputs[2] = len(part.tensors) - 1
    operator.inputs = inputs
