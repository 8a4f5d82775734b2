"""Ranges wide enough for biases to fit.

The kernels add the bias as an integer of 32 bits in steps of input scale times weight scale, and the quantizer does not
look whether it fits. It does not where a filter is all zero (a channel that died in training, but kept its bias) or
where an input was zero on all calibration data: the bias turns into noise. Both get steps as large as the bias needs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quaver.adapters.litert.graph import WEIGHTS, Graph
from quaver.adapters.litert.units import Unit
from quaver.adapters.ranges import Range

# The largest integer a bias may become; half of what fits, so that there is room for the sum.
LARGEST = 2.0**30
_AXIS = {"DEPTHWISE_CONV_2D": 3}

Extremes = dict[str, NDArray[Any]]


def input_steps(graph: Graph, units: Sequence[Unit], followers: Mapping[int, int]) -> dict[int, float]:
    """The least step of each tensor that feeds an op with a bias."""
    steps: dict[int, float] = defaultdict(float)
    for unit in units:
        bias, weight = _bias(graph, unit), _weight(graph, unit)
        if bias is None or weight is None:
            continue
        step = float(np.max(np.abs(bias))) / (LARGEST * max(float(np.max(np.abs(weight))) / 127, 1e-30))
        tensor: int | None = _input(unit)
        while tensor is not None:  # what moves values about takes the scale of what it moves
            steps[tensor] = max(steps[tensor], step)
            writer = graph.writers.get(tensor, -1)
            tensor = followers.get(writer)
    return dict(steps)


def widened(range_: Range, step: float) -> Range:
    """The range, if need be with a higher end."""
    low, high = range_
    return low, max(high, low + 255 * step)


def weight_extremes(graph: Graph, units: Sequence[Unit], steps: Mapping[int, float]) -> dict[int, dict[str, Extremes]]:
    """For weights whose steps would be too small, their least and greatest values to quantize with, by granularity.

    `steps` holds the smallest step that any configuration gives to each tensor.
    """
    found: dict[int, dict[str, Extremes]] = {}
    for buffer, sharing in _by_buffer(graph, units).items():
        weight = _weight(graph, sharing[0])
        assert weight is not None
        axis = _AXIS.get(sharing[0].operator.kind, 0)
        others = tuple(at for at in range(weight.ndim) if at != axis)
        least: NDArray[Any] = np.zeros(weight.shape[axis])
        for unit in sharing:
            bias = _bias(graph, unit)
            if bias is not None:
                least = np.maximum(least, np.abs(bias) / (LARGEST * steps[_input(unit)]))
        peaks = np.max(np.abs(weight), axis=others)
        if np.all(peaks / 127 >= least):
            continue
        shape = [1] * weight.ndim
        whole = np.full(shape, max(float(peaks.max()), 127 * float(least.max())), np.float32)
        shape[axis] = -1
        each = np.maximum(peaks, 127 * least).astype(np.float32).reshape(shape)
        found[buffer] = {
            "per_channel": {"min": -each, "max": each},
            "per_tensor": {"min": -whole, "max": whole},
        }
    return found


def _by_buffer(graph: Graph, units: Sequence[Unit]) -> dict[int, list[Unit]]:
    sharing: dict[int, list[Unit]] = defaultdict(list)
    for unit in units:
        if unit.weight is not None and unit.operator.kind != "BATCH_MATMUL":
            sharing[graph.main.tensors[unit.weight].buffer].append(unit)
    return sharing


def _weight(graph: Graph, unit: Unit) -> NDArray[Any] | None:
    return None if unit.weight is None else graph.constant(unit.weight)


def _bias(graph: Graph, unit: Unit) -> NDArray[Any] | None:
    slot = WEIGHTS.get(unit.operator.kind, (None, None))[1]
    if slot is None or slot >= len(unit.operator.inputs):
        return None
    return graph.constant(unit.operator.inputs[slot])


def _input(unit: Unit) -> int:
    return unit.operator.inputs[2 if unit.operator.kind == "TRANSPOSE_CONV" else 0]
