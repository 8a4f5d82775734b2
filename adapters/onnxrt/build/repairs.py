"""Repairs of ONNX units: their weight and bias as every repair sees them, and what comes of one as parts of a graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from quaver.adapters.calibration.channel_statistics import Channels, Statistic
from quaver.adapters.onnxrt.build.affine import Float, quantize_weight, scale_for_bias, weight_scale
from quaver.adapters.onnxrt.build.saturation import Reduction
from quaver.adapters.onnxrt.build.weight_store import Entry, WeightStore
from quaver.adapters.onnxrt.load.graph import Graph, integer
from quaver.adapters.onnxrt.ops.units import Unit
from quaver.adapters.repairs.base import RepairableOp, repaired
from quaver.errors import BuildError


class RepairedUnit(NamedTuple):
    """A unit's constants after repairs, as parts of a graph.

    Attributes:
        nodes: that dequantize them.
        entries: the constants.
        inputs: which inputs of the unit's nodes they are: (node, slot) -> name.
        is_coarser: of an int8 weight, for each of its scales whether it is larger so that no sum saturates.
    """

    nodes: bytes
    entries: tuple[Entry, ...]
    inputs: Mapping[tuple[int, int], str]
    is_coarser: tuple[bool, ...] = ()


def as_repairable(graph: Graph, unit: Unit) -> RepairableOp | None:
    """A unit as repairs see it; None if it has no weight, or one that is not laid out in channels."""
    node = graph.nodes[unit.anchor]
    if unit.weight is None or node.op_type not in ("Conv", "Gemm", "MatMul"):
        return None
    weight = np.asarray(graph.constants[unit.weight], np.float32)
    if node.op_type == "MatMul" and weight.ndim != 2:
        return None
    convolution = node.op_type == "Conv"
    place = _bias_place(graph, unit)
    bias = graph.constants.get(_input(graph, place)) if place is not None else None
    return RepairableOp(
        name=unit.op.name,
        kind=unit.op.kind,
        reads=unit.activations[0],
        axis=1 if convolution else -1,
        weight=_transposed(graph, unit, weight),
        groups=integer(node, "group", 1) if convolution else 1,
        bias=None if bias is None else np.asarray(bias, np.float32),
        takes_bias=place is not None,
    )


def repair_unit(
    graph: Graph,
    store: WeightStore,
    unit: Unit,
    names: tuple[str, ...],
    statistics: Mapping[Statistic, Channels],
    axis: int | None,
    activation_scale: Float,
    mark: str,
    reads: Float | None = None,
    writes: Float | None = None,
    reduction: Reduction | None = None,
) -> RepairedUnit:
    """Repair a unit, then quantize its weight along `axis` and its bias.

    It reads a tensor divided by the factors `reads`, and is to write one divided by `writes`. With a `reduction` no sum
    of its kernel saturates.
    """
    before = as_repairable(graph, unit)
    if before is None:
        raise BuildError(f"repair {names[0]!r} cannot be done to op {unit.op.name!r}, which is a {unit.op.kind}")
    if reads is not None:
        divided = before.reads, before.axis  # others may count the channels of the same tensor along another axis
        statistics = {
            wanted: channels / reads if (wanted.tensor, wanted.axis) == divided else channels
            for wanted, channels in statistics.items()
        }
    before = rescaled(before, reads, writes)

    def quantized(weight: Float) -> Float:
        values = _transposed(graph, unit, np.asarray(weight, np.float32))
        scale = weight_scale(values, axis, reduction)
        shape = [1] * values.ndim
        if axis is not None:
            shape[axis] = -1
        real = quantize_weight(values, axis, scale, reduction).values.astype(np.float32) * scale.reshape(shape)
        return _transposed(graph, unit, real)

    after = repaired(before, names, statistics, quantized)
    _check(after, before, names)
    weight = np.ascontiguousarray(_transposed(graph, unit, np.asarray(after.weight, np.float32)))
    scale = weight_scale(weight, axis, reduction)
    is_coarser = () if reduction is None else tuple((scale > weight_scale(weight, axis)).reshape(-1).tolist())
    bias = None if after.bias is None else np.asarray(after.bias, np.float32)
    place = _bias_place(graph, unit)
    in_kernel = place is not None and place[0] == unit.anchor
    if bias is not None and in_kernel and (wider := scale_for_bias(bias, activation_scale, scale)) is not None:
        scale = wider
    made = store.weight_parts(f"{unit.op.name}{mark}weight", weight, axis, scale, reduction)
    nodes, entries, inputs = made.node, list(made.entries), {(unit.anchor, 1): made.name}
    if bias is not None and place is not None:
        name = inputs[place] = f"{unit.op.name}{mark}bias"
        if in_kernel:
            node, more = store.bias_parts(name, bias, activation_scale, scale)
            nodes += node
            entries += more
        else:
            entries.append(store.add(name, bias))
    return RepairedUnit(nodes, tuple(entries), inputs, is_coarser)


def rescaled(op: RepairableOp, reads: Float | None, writes: Float | None) -> RepairableOp:
    """An op that reads a tensor divided by the factors `reads`, and writes one divided by `writes`."""
    weight, bias = op.weight, op.bias
    if reads is not None:
        grouped = weight.reshape(op.groups, -1, *weight.shape[1:])
        weight = (grouped * reads.reshape(op.groups, 1, -1, *[1] * (weight.ndim - 2))).reshape(weight.shape)
    if writes is not None:
        weight = (weight.astype(np.float64) / writes.reshape(-1, *[1] * (weight.ndim - 1))).astype(np.float32)
        bias = None if bias is None else (bias.astype(np.float64) / writes).astype(np.float32)
    return replace(op, weight=weight, bias=bias, rescalable=op.rescalable or reads is not None)


def float_constants(
    graph: Graph, store: WeightStore, unit: Unit, mark: str, reads: Float | None, writes: Float | None
) -> RepairedUnit:
    """The weight and the bias of a unit that stays in float, and reads or writes what is divided by these factors."""
    op = as_repairable(graph, unit)
    assert op is not None
    op = rescaled(op, reads, writes)
    inputs = {(unit.anchor, 1): f"{unit.op.name}{mark}weight"}
    entries = [store.add(inputs[unit.anchor, 1], np.ascontiguousarray(_transposed(graph, unit, op.weight)))]
    place = _bias_place(graph, unit)
    if writes is not None and op.bias is not None and place is not None:
        inputs[place] = f"{unit.op.name}{mark}bias"
        entries.append(store.add(inputs[place], op.bias))
    return RepairedUnit(b"", tuple(entries), inputs)


def _bias_place(graph: Graph, unit: Unit) -> tuple[int, int] | None:
    """The node and the slot that take a unit's bias: of the integer kernel, or of the Add behind a product."""
    if graph.nodes[unit.anchor].op_type != "MatMul":
        return unit.anchor, 2
    for index in unit.nodes[1:]:
        node = graph.nodes[index]
        if node.op_type == "Add":
            return index, next(slot for slot, name in enumerate(node.input) if name in graph.constants)
    return None


def _input(graph: Graph, place: tuple[int, int]) -> str:
    index, slot = place
    names = graph.nodes[index].input
    return names[slot] if slot < len(names) else ""


def _transposed(graph: Graph, unit: Unit, weight: Float) -> Float:
    """From the layout of the graph to that of repairs, and back: products have output channels last."""
    node = graph.nodes[unit.anchor]
    transposed = node.op_type == "MatMul" or (node.op_type == "Gemm" and not integer(node, "transB", 0))
    return weight.T if transposed else weight


def _check(after: RepairableOp, before: RepairableOp, names: tuple[str, ...]) -> None:
    told = f"repair {' and '.join(map(repr, names))} of op {before.name!r}"
    if np.shape(after.weight) != before.weight.shape or not np.all(np.isfinite(after.weight)):
        raise BuildError(f"{told} gives a weight of another shape, or one that holds NaN or infinity")
    if after.bias is None:
        return
    if not before.takes_bias:
        raise BuildError(f"{told} gives it a bias, and it takes none")
    if np.shape(after.bias) != before.weight.shape[:1] or not np.all(np.isfinite(after.bias)):
        raise BuildError(f"{told} gives a bias of another shape, or one that holds NaN or infinity")
