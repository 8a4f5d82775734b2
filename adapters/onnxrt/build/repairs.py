"""Repairs of ONNX units: their weight and bias as repairs see them, and the repaired constants as parts of a graph.

Repairs (`adapters/repairs/`) know no framework: they get a `RepairableOp`, whose weight has output channels first, and
return another one. This module converts between that form and the layout of the graph, quantizes what comes back, and
serializes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from quaver.adapters.calibration.channel_statistics import Channels, Statistic
from quaver.adapters.onnxrt.build.affine import Float, quantize_weight, scale_for_bias, weight_scale
from quaver.adapters.onnxrt.build.saturation import Reduction
from quaver.adapters.onnxrt.build.weight_store import Entry, WeightStore
from quaver.adapters.onnxrt.load.graph import Graph, integer
from quaver.adapters.onnxrt.ops.unit import Unit
from quaver.adapters.repairs.base import RepairableOp, repaired
from quaver.errors import BuildError


class RepairedUnit(NamedTuple):
    """A unit's constants after repairs, as parts of a graph.

    Attributes:
        nodes: the nodes that dequantize the constants.
        entries: the constants.
        inputs: which inputs of the unit's nodes they are: (node, slot) -> name.
        is_coarser: for each scale of an int8 weight, True if it is larger so that no sum saturates.
    """

    nodes: bytes
    entries: tuple[Entry, ...]
    inputs: Mapping[tuple[int, int], str]
    is_coarser: tuple[bool, ...] = ()


class Factors(NamedTuple):
    """The factors that divide the channels of what a unit reads and writes; None where they are not divided."""

    reads: Float | None = None
    writes: Float | None = None


NO_FACTORS = Factors()


@dataclass(frozen=True, slots=True)
class RepairRequest:
    """How one unit is to be repaired and quantized.

    Attributes:
        unit: the unit.
        repairs: names of the repairs, with their strength if they have one.
        statistics: the channel statistics that repairs may ask for.
        axis: the axis of the weight with a scale for each channel; None for one scale.
        activation_scale: the scale of what the unit reads.
        factors: the factors that divide the channels of its input and output.
        reduction: the axes of a sum that must not saturate at 16 bits; None if it cannot, or may.
    """

    unit: Unit
    repairs: tuple[str, ...]
    statistics: Mapping[Statistic, Channels]
    axis: int | None
    activation_scale: Float
    factors: Factors = NO_FACTORS
    reduction: Reduction | None = None


def as_repairable(graph: Graph, unit: Unit) -> RepairableOp | None:
    """Return a unit in the form that repairs work on; None if its weight has no channels, or it has no weight."""
    node = graph.nodes[unit.anchor]
    if unit.weight is None or node.op_type not in ("Conv", "Gemm", "MatMul"):
        return None
    weight = np.asarray(graph.constants[unit.weight], np.float32)
    if node.op_type == "MatMul" and weight.ndim != 2:
        return None
    is_convolution = node.op_type == "Conv"
    place = _bias_place(graph, unit)
    bias = graph.constants.get(_input_name(graph, place)) if place is not None else None
    return RepairableOp(
        name=unit.op.name,
        kind=unit.op.kind,
        reads=unit.activations[0],
        axis=1 if is_convolution else -1,
        weight=_transposed(graph, unit, weight),
        groups=integer(node, "group", 1) if is_convolution else 1,
        bias=None if bias is None else np.asarray(bias, np.float32),
        takes_bias=place is not None,
    )


def repair_unit(graph: Graph, store: WeightStore, mark: str, request: RepairRequest) -> RepairedUnit:
    """Repair a unit, quantize its weight and bias, and return them as parts of a graph.

    Args:
        graph: the float graph.
        store: where large constants go.
        mark: a separator that no name of the model holds.
        request: the unit, its repairs, and how its weight is quantized.
    """
    unit, repairs = request.unit, request.repairs
    before = as_repairable(graph, unit)
    if before is None:
        raise BuildError(f"repair {repairs[0]!r} cannot be applied to op {unit.op.name!r}, which is a {unit.op.kind}")
    statistics = _divided_statistics(request, before)
    before = rescaled(before, request.factors)

    def quantized(weight: Float) -> Float:
        return _quantized_weight(graph, request, weight)

    after = repaired(before, repairs, statistics, quantized)
    _check(after, before, repairs)
    return _serialized(graph, store, mark, request, after)


def _divided_statistics(request: RepairRequest, op: RepairableOp) -> Mapping[Statistic, Channels]:
    """Return the statistics as they are once the channels of what the op reads are divided."""
    factors = request.factors.reads
    if factors is None:
        return request.statistics
    divided = op.reads, op.axis  # other ops may count the channels of the same tensor along another axis
    return {
        statistic: channels / factors if (statistic.tensor, statistic.axis) == divided else channels
        for statistic, channels in request.statistics.items()
    }


def _quantized_weight(graph: Graph, request: RepairRequest, weight: Float) -> Float:
    """Return a weight, in the form of repairs, after it was rounded to int8."""
    axis, reduction = request.axis, request.reduction
    values = _transposed(graph, request.unit, np.asarray(weight, np.float32))
    scale = weight_scale(values, axis, reduction)
    shape = [1] * values.ndim
    if axis is not None:
        shape[axis] = -1
    rounded = quantize_weight(values, axis, scale, reduction).values.astype(np.float32) * scale.reshape(shape)
    return _transposed(graph, request.unit, rounded)


def _serialized(graph: Graph, store: WeightStore, mark: str, request: RepairRequest, op: RepairableOp) -> RepairedUnit:
    """Quantize the weight and the bias of a repaired op, and return them as parts of a graph."""
    unit, axis, reduction = request.unit, request.axis, request.reduction
    weight = np.ascontiguousarray(_transposed(graph, unit, np.asarray(op.weight, np.float32)))
    scale = weight_scale(weight, axis, reduction)
    is_coarser = () if reduction is None else tuple((scale > weight_scale(weight, axis)).reshape(-1).tolist())
    bias = None if op.bias is None else np.asarray(op.bias, np.float32)
    place = _bias_place(graph, unit)
    is_in_kernel = place is not None and place[0] == unit.anchor
    if bias is not None and is_in_kernel:
        wider = scale_for_bias(bias, request.activation_scale, scale)
        scale = scale if wider is None else wider
    parts = store.weight_parts(f"{unit.op.name}{mark}weight", weight, axis, scale, reduction)
    nodes, entries, inputs = parts.node, list(parts.entries), {(unit.anchor, 1): parts.name}
    if bias is not None and place is not None:
        name = inputs[place] = f"{unit.op.name}{mark}bias"
        if is_in_kernel:
            node, bias_entries = store.bias_parts(name, bias, request.activation_scale, scale)
            nodes += node
            entries += bias_entries
        else:
            entries.append(store.add(name, bias))
    return RepairedUnit(nodes, tuple(entries), inputs, is_coarser)


def rescaled(op: RepairableOp, factors: Factors) -> RepairableOp:
    """Return an op that reads and writes tensors whose channels are divided by these factors."""
    weight, bias = op.weight, op.bias
    if factors.reads is not None:
        grouped = weight.reshape(op.groups, -1, *weight.shape[1:])
        weight = (grouped * factors.reads.reshape(op.groups, 1, -1, *[1] * (weight.ndim - 2))).reshape(weight.shape)
    if factors.writes is not None:
        by_channel = factors.writes.reshape(-1, *[1] * (weight.ndim - 1))
        weight = (weight.astype(np.float64) / by_channel).astype(np.float32)
        bias = None if bias is None else (bias.astype(np.float64) / factors.writes).astype(np.float32)
    return replace(op, weight=weight, bias=bias, rescalable=op.rescalable or factors.reads is not None)


def float_constants(graph: Graph, store: WeightStore, unit: Unit, mark: str, factors: Factors) -> RepairedUnit:
    """Return the weight and bias of a unit that stays fp32 and reads or writes tensors divided by these factors."""
    op = as_repairable(graph, unit)
    assert op is not None
    op = rescaled(op, factors)
    inputs = {(unit.anchor, 1): f"{unit.op.name}{mark}weight"}
    entries = [store.add(inputs[unit.anchor, 1], np.ascontiguousarray(_transposed(graph, unit, op.weight)))]
    place = _bias_place(graph, unit)
    if factors.writes is not None and op.bias is not None and place is not None:
        inputs[place] = f"{unit.op.name}{mark}bias"
        entries.append(store.add(inputs[place], op.bias))
    return RepairedUnit(b"", tuple(entries), inputs)


def _bias_place(graph: Graph, unit: Unit) -> tuple[int, int] | None:
    """Return the node and the slot that take a unit's bias: the integer kernel, or the Add behind a product."""
    if graph.nodes[unit.anchor].op_type != "MatMul":
        return unit.anchor, 2
    for index in unit.nodes[1:]:
        node = graph.nodes[index]
        if node.op_type == "Add":
            return index, next(slot for slot, name in enumerate(node.input) if name in graph.constants)
    return None


def _input_name(graph: Graph, place: tuple[int, int]) -> str:
    index, slot = place
    names = graph.nodes[index].input
    return names[slot] if slot < len(names) else ""


def _transposed(graph: Graph, unit: Unit, weight: Float) -> Float:
    """Convert a weight from the layout of the graph to that of repairs, or back: products have output channels last."""
    node = graph.nodes[unit.anchor]
    is_transposed = node.op_type == "MatMul" or (node.op_type == "Gemm" and not integer(node, "transB", 0))
    return weight.T if is_transposed else weight


def _check(after: RepairableOp, before: RepairableOp, repairs: tuple[str, ...]) -> None:
    subject = f"repair {' and '.join(map(repr, repairs))} of op {before.name!r}"
    if np.shape(after.weight) != before.weight.shape or not np.all(np.isfinite(after.weight)):
        raise BuildError(f"{subject} returns a weight of another shape, or one that holds NaN or infinity")
    if after.bias is None:
        return
    if not before.takes_bias:
        raise BuildError(f"{subject} returns a bias, and the op takes none")
    if np.shape(after.bias) != before.weight.shape[:1] or not np.all(np.isfinite(after.bias)):
        raise BuildError(f"{subject} returns a bias of another shape, or one that holds NaN or infinity")
