"""Widen ranges where the kernels need it.

The kernels add a bias as a 32-bit integer in steps of input scale times weight scale, and the quantizer does not check
that it fits. It does not fit where a filter is all zero (a channel that died in training, but kept its bias), or where
an input was zero on all calibration data: the bias turns into noise. And XNNPACK refuses a model in which a step of the
result is less than a 256th of a step of the accumulator, as it is where a whole layer died.

"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from quaver.adapters.calibration.ranges import Range
from quaver.adapters.litert.load.graph import WEIGHT_AND_BIAS, Graph
from quaver.adapters.litert.ops.units import Unit, activations
from quaver.types import Array

# The largest integer bias: half of what fits into 32 bits, so that there is room for the sum.
MAX_BIAS = 2.0**30
# Largest ratio of a step of the accumulator to a step of the result: half of what XNNPACK accepts.
MAX_STEP_RATIO = 128.0
_AXIS = {"DEPTHWISE_CONV_2D": 3}
_TINY = 1e-12

Extremes = dict[str, Array]
Ranges = dict[int, dict[str, Range]]


def widen_ranges(graph: Graph, units: Sequence[Unit], passthrough: Mapping[int, int], ranges: Ranges) -> Ranges:
    """Return the ranges of tensors by method, with a higher upper end where a kernel needs it."""
    result = {tensor: dict(by_method) for tensor, by_method in ranges.items()}
    for unit in units:
        step = _step_for_bias(graph, unit)
        tensor: int | None = _input(unit)
        while tensor is not None:  # movers take the scale of their input
            _widen(result, tensor, step)
            tensor = passthrough.get(graph.writers.get(tensor, -1))
    for unit in units:
        read = [_step(result[tensor]) for tensor in activations(graph, unit.operator)]
        _widen(result, unit.operator.outputs[0], _accumulator_step(graph, unit, read) / MAX_STEP_RATIO)
    return result


def weight_extremes(graph: Graph, units: Sequence[Unit], ranges: Ranges) -> dict[int, dict[str, Extremes]]:
    """Return the extremes to quantize weights with whose steps would be too small for the bias.

    Returns:
        Extremes by the buffer of the weight and by granularity; the same for every configuration.
    """
    extremes: dict[int, dict[str, Extremes]] = {}
    for buffer, sharing in _by_buffer(graph, units).items():
        weight = _weight(graph, sharing[0])
        assert weight is not None
        axis = _AXIS.get(sharing[0].operator.kind, 0)
        peaks: Array = np.max(np.abs(weight), axis=tuple(at for at in range(weight.ndim) if at != axis))
        least: Array = np.zeros(len(peaks))
        for unit in sharing:
            bias = _bias(graph, unit)
            if bias is not None:
                smallest = max(min(_steps(ranges[_input(unit)])), _TINY)
                least = np.maximum(least, np.abs(bias) / (MAX_BIAS * smallest))
        if np.any(peaks / 127 < least):
            extremes[buffer] = _extremes(np.maximum(peaks, 127 * least), weight.ndim, axis)
    return extremes


def _extremes(peaks: Array, axes: int, axis: int) -> dict[str, Extremes]:
    shape = [1] * axes
    whole = np.full(shape, peaks.max(), np.float32)
    shape[axis] = -1
    each = peaks.astype(np.float32).reshape(shape)
    return {"per_channel": {"min": -each, "max": each}, "per_tensor": {"min": -whole, "max": whole}}


def _step_for_bias(graph: Graph, unit: Unit) -> float:
    bias, weight = _bias(graph, unit), _weight(graph, unit)
    if bias is None or weight is None:
        return 0.0
    return float(np.max(np.abs(bias))) / (MAX_BIAS * max(float(np.max(np.abs(weight))) / 127, _TINY))


def _accumulator_step(graph: Graph, unit: Unit, read: Sequence[float]) -> float:
    """Return a step of the result before it is rescaled."""
    weight = _weight(graph, unit)
    if weight is not None:
        return read[0] * float(np.max(np.abs(weight))) / 127
    if unit.operator.kind not in ("MUL", "BATCH_MATMUL"):
        return max(read)
    constants = [graph.constant(tensor) for tensor in unit.operator.inputs]
    steps = [*read, *(float(np.max(np.abs(array))) / 127 for array in constants if array is not None)]
    return float(np.prod(steps)) if len(steps) > 1 else steps[0] ** 2


def _widen(ranges: Ranges, tensor: int, step: float) -> None:
    for method, (low, high) in ranges.get(tensor, {}).items():
        ranges[tensor][method] = low, max(high, low + 255 * step)


def _steps(by_method: Mapping[str, Range]) -> Iterable[float]:
    return ((high - low) / 255 for low, high in by_method.values())


def _step(by_method: Mapping[str, Range]) -> float:
    return max(_steps(by_method))


def _by_buffer(graph: Graph, units: Sequence[Unit]) -> dict[int, list[Unit]]:
    sharing: dict[int, list[Unit]] = defaultdict(list)
    for unit in units:
        if unit.weight is not None and unit.operator.kind != "BATCH_MATMUL":
            sharing[graph.main.tensors[unit.weight].buffer].append(unit)
    return sharing


def _weight(graph: Graph, unit: Unit) -> Array | None:
    return None if unit.weight is None else graph.constant(unit.weight)


def _bias(graph: Graph, unit: Unit) -> Array | None:
    slot = WEIGHT_AND_BIAS.get(unit.operator.kind, (None, None))[1]
    if slot is None or slot >= len(unit.operator.inputs):
        return None
    return graph.constant(unit.operator.inputs[slot])


def _input(unit: Unit) -> int:
    return unit.operator.inputs[2 if unit.operator.kind == "TRANSPOSE_CONV" else 0]
