"""Rescaling in ONNX graphs: whose input it can be, and what divides the channels.

Where what makes a tensor can divide it by constants that it has, that costs nothing. Anything else is divided by a Mul
of its own, which the ops that are rescaled read, and nobody else.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from onnx import NodeProto

from quaver.adapters.calibration.channel_statistics import Channels, Statistic
from quaver.adapters.calibration.ranges import Range
from quaver.adapters.onnxrt.build import protobuf
from quaver.adapters.onnxrt.build.affine import Float
from quaver.adapters.onnxrt.build.repairs import RepairedUnit, as_repairable, float_constants
from quaver.adapters.onnxrt.build.weight_store import Entry, WeightStore
from quaver.adapters.onnxrt.load.graph import Graph, attribute, integer
from quaver.adapters.onnxrt.ops.passthrough import bounds, is_global_average_pool, passed_through
from quaver.adapters.onnxrt.ops.units import Unit
from quaver.adapters.onnxrt.optimize.layers import scale_and_shift
from quaver.adapters.repairs.base import RepairableOp, find_repair, shared_factors
from quaver.adapters.repairs.rescaling import Rescaling
from quaver.errors import BuildError
from quaver.repairs import order

_WEIGHTY = ("Conv", "Gemm", "MatMul")
# Factors are taken back through so many nodes at most: it is looked at from each op that reads.
_FAR = 16
# What lets factors pass wherever channels lie, and what does where they lie on axis 1.
_ELEMENTWISE = {"Relu", "LeakyRelu"}
_GLOBAL_POOLS = {"GlobalAveragePool", "GlobalMaxPool"}
_POOLS = {"MaxPool", "AveragePool"} | _GLOBAL_POOLS


class ScaledConstant(NamedTuple):
    """A constant of a float node that takes factors.

    Attributes:
        node: its index.
        slot: which of its inputs it is.
        trailing: how many axes of it lie behind that of channels.
        multiplied: whether it is multiplied by the factors instead, as one that is divided by.
    """

    node: int
    slot: int
    trailing: int
    multiplied: bool = False


class ScaleAbsorber(NamedTuple):
    """Where factors of a tensor's channels can go.

    Attributes:
        tensors: all that are divided then, from the one in question backwards, and the axis of channels in each.
        constants: of float nodes, that take the factors.
        unit: the op whose weight and bias take them, if one does.
    """

    tensors: Mapping[str, int]
    constants: tuple[ScaledConstant, ...]
    unit: Unit | None = None


class _ChannelTensor(NamedTuple):
    """A tensor on the way back: its channels lie on `axis`, counted from the front, of `rank`."""

    name: str
    axis: int
    rank: int


# A tensor to be divided in the place of what is made of it, and the constants that must be divided with it.
_Step = tuple[_ChannelTensor, tuple[ScaledConstant, ...]]


class AbsorberFinder:
    """Finds what can divide tensors of one graph."""

    def __init__(self, graph: Graph, unit_of: Mapping[int, Unit], pinned: Set[str]) -> None:
        self._graph, self._unit_of, self._pinned = graph, unit_of, pinned

    def find(self, name: str, axis: int, channels: int, readers: Set[int]) -> ScaleAbsorber | None:
        """What can divide a tensor that these nodes read; None if nothing can, or others read it too."""
        rank = self._graph.ranks.get(name)
        if rank is None or set(self._graph.consumers.get(name, ())) != set(readers):
            return None
        return self._back(_ChannelTensor(name, axis % rank, rank), channels, _FAR)

    def _back(self, tensor: _ChannelTensor, channels: int, far: int) -> ScaleAbsorber | None:
        """The same from a tensor that nobody else reads, through so many nodes."""
        index = self._graph.producers.get(tensor.name)
        if index is None or tensor.name in self._pinned or not far:
            return None
        node, unit = self._graph.nodes[index], self._unit_of.get(index)
        if node.domain not in ("", "ai.onnx"):
            return None
        if unit is not None and unit.weight is not None:
            return self._op(tensor, unit, channels)
        ends = self._ends(tensor, index, node, channels) if unit is None else None
        if ends is not None:
            return ScaleAbsorber({tensor.name: tensor.axis}, ends)
        for before, constants in self._steps(tensor, index, node, channels):
            found = self._back(before, channels, far - 1) if self._graph.only_reader(before.name) is node else None
            if found is not None:
                tensors = {tensor.name: tensor.axis, **found.tensors}
                return ScaleAbsorber(tensors, (*constants, *found.constants), found.unit)
        return None

    def _op(self, tensor: _ChannelTensor, unit: Unit, channels: int) -> ScaleAbsorber | None:
        """An op with a weight, if its output channels are those of the tensor."""
        graph, anchor = self._graph, self._graph.nodes[unit.anchor]
        if tensor.name != unit.output or anchor.op_type not in _WEIGHTY or unit.weight is None:
            return None
        if tensor.axis != (1 if anchor.op_type == "Conv" else tensor.rank - 1):
            return None
        if unit.axis is None or graph.constants[unit.weight].shape[unit.axis] != channels:
            return None
        clips = [graph.nodes[index] for index in unit.nodes if graph.nodes[index].op_type == "Clip"]
        if any(bounds(graph, clip)[1] is not None for clip in clips):
            return None
        return ScaleAbsorber({tensor.name: tensor.axis}, (), unit)

    def _ends(
        self, tensor: _ChannelTensor, index: int, node: NodeProto, channels: int
    ) -> tuple[ScaledConstant, ...] | None:
        """The constants of a node that can take the factors by themselves."""
        graph = self._graph
        if node.op_type in ("LayerNormalization", "BatchNormalization") and len(node.output) == 1:
            layer = node.op_type == "LayerNormalization"
            axis = integer(node, "axis", -1) % tensor.rank if layer else 1
            parts = [graph.constants.get(name) for name in node.input[1:3]]
            if axis != tensor.axis or (layer and axis != tensor.rank - 1) or integer(node, "training_mode", 0):
                return None
            if all(part is not None and part.shape == (channels,) for part in parts):
                return tuple(ScaledConstant(index, 1 + at, 0) for at in range(len(parts)))
        if node.op_type in ("Mul", "Div") and (source := self._other(node)) is not None:
            return self._each(tensor, index, node, source, channels)
        return None

    def _each(
        self, tensor: _ChannelTensor, index: int, node: NodeProto, source: str, channels: int
    ) -> tuple[ScaledConstant, ...] | None:
        """The constant of a Mul, Div or Add that has a value for each channel."""
        graph, slot = self._graph, 1 - list(node.input).index(source)
        found = scale_and_shift(graph, node, source, channels, tensor.rank, tensor.axis)
        if found is None or graph.constants[node.input[slot]].size != channels:
            return None
        return (ScaledConstant(index, slot, tensor.rank - 1 - tensor.axis, node.op_type == "Div"),)

    def _steps(self, tensor: _ChannelTensor, index: int, node: NodeProto, channels: int) -> list[_Step]:
        """The tensors that could be divided in the place of what a node makes, and constants that must be as well."""
        graph = self._graph
        same: list[_Step] = [(tensor._replace(name=name), ()) for name in node.input]
        if node.op_type in _ELEMENTWISE:
            return same[:1]
        if node.op_type == "Transpose":
            order = attribute(node, "perm")
            before = tensor.rank - 1 - tensor.axis if order is None else order.ints[tensor.axis]
            return [(tensor._replace(name=node.input[0], axis=int(before)), ())]
        if node.op_type == "Pad" and passed_through(graph, node) is not None:
            return same[:1]
        if node.op_type in _POOLS and tensor.axis == 1 and len([name for name in node.output if name]) == 1:
            return same[:1]
        if node.op_type == "ReduceMean" and tensor.axis == 1 and is_global_average_pool(graph, node):
            return [(_ChannelTensor(node.input[0], 1, 4), ())]
        if node.op_type in ("Flatten", "Reshape", "Squeeze"):
            return self._flattened(tensor, node, channels)
        if (
            node.op_type == "Mul"
            and len(set(node.input)) == 2
            and all(self._is_whole(tensor, one) for one in node.input)
        ):
            return same
        if node.op_type in ("Mul", "Add") and (source := self._other(node)) is not None:
            if node.op_type == "Mul":  # by one number: by one for each channel it would take the factors
                single = graph.constants[node.input[1 - list(node.input).index(source)]].size == 1
                return [(tensor._replace(name=source), ())] if single and self._is_whole(tensor, source) else []
            constants = self._each(tensor, index, node, source, channels) if index not in self._unit_of else None
            return [] if constants is None else [(tensor._replace(name=source), constants)]
        return []

    def _flattened(self, tensor: _ChannelTensor, node: NodeProto, channels: int) -> list[_Step]:
        """An image of one point that becomes a row: its channels become columns."""
        source = self._graph.producers.get(node.input[0])
        if source is None or tensor.rank != 2 or tensor.axis != 1:
            return []
        before = self._graph.nodes[source]
        points = before.op_type in _GLOBAL_POOLS or (
            before.op_type == "ReduceMean" and is_global_average_pool(self._graph, before)
        )
        rank = self._graph.ranks.get(node.input[0])
        if not points or rank is None or rank < 3:
            return []
        if node.op_type == "Reshape":
            shape = self._graph.constants.get(node.input[1])
            if shape is None or shape.size != 2 or int(shape.reshape(-1)[1]) not in (channels, -1):
                return []
            if int(shape.reshape(-1)[1]) == -1 and int(shape.reshape(-1)[0]) != 0:
                return []
        elif node.op_type == "Flatten" and integer(node, "axis", 1) != 1:
            return []
        return [(_ChannelTensor(node.input[0], 1, rank), ())]

    def _other(self, node: NodeProto) -> str | None:
        """What a node reads besides one constant."""
        others = [name for name in node.input if name not in self._graph.constants]
        return others[0] if len(others) == 1 and len(node.input) == 2 else None

    def _is_whole(self, tensor: _ChannelTensor, name: str) -> bool:
        """Whether a factor of a product is a tensor with all channels of it, so that nothing is spread over others."""
        return name not in self._graph.constants and self._graph.ranks.get(name) == tensor.rank


class RescalableTensor(NamedTuple):
    """A tensor whose channels can be rescaled for all ops with weights that read it.

    Attributes:
        units: these ops, in graph order.
        axis: the axis of it that holds channels, as they count it.
        divisor: what can divide it at no cost; None if it takes a Mul.
    """

    units: tuple[Unit, ...]
    axis: int
    divisor: ScaleAbsorber | None


def find_rescalable(
    graph: Graph, units: Sequence[Unit], roots: Mapping[str, str], pinned: Set[str]
) -> dict[str, RescalableTensor]:
    """All tensors that can be rescaled, by name.

    What convolutions read, and what an int8 op writes in integers, is among them only where that costs nothing. Else a
    Mul would cost more than it brings: outliers have cost the other channels their levels before it could divide.
    """
    written = {unit.output for unit in units if unit.quantized_output}
    finder = AbsorberFinder(graph, {index: unit for unit in units for index in unit.nodes}, pinned)
    readers: dict[str, list[RepairableOp]] = {}
    by_name = {unit.op.name: unit for unit in units}
    for unit in units:
        op = as_repairable(graph, unit) if unit.has_static_choice else None
        if op is not None:
            readers.setdefault(op.reads, []).append(op)
    found = {}
    for name, ops in readers.items():
        reading = tuple(by_name[op.name] for op in ops)
        channels = {(op.axis, op.groups * op.weight.shape[1]) for op in ops}
        divisor = None
        if len(channels) == 1:
            ((axis, count),) = channels
            divisor = finder.find(name, axis, count, {unit.anchor for unit in reading})
        if divisor is None:
            reading = tuple(unit for unit in reading if graph.nodes[unit.anchor].op_type in ("Gemm", "MatMul"))
        if divisor is not None or (reading and roots.get(name, name) not in written):
            found[name] = RescalableTensor(reading, ops[0].axis if divisor is not None else -1, divisor)
    return found


class Rescaler:
    """Rescales tensors of one graph. What does not depend on the calibration is found once."""

    def __init__(
        self, graph: Graph, units: Sequence[Unit], store: WeightStore, mark: str, roots: Mapping[str, str]
    ) -> None:
        self._graph, self._store, self._mark = graph, store, mark
        self.shared = find_rescalable(graph, units, roots, graph.pinned)
        # Of each tensor that can be divided: for whose sake, and the axis of its channels.
        self._divided: dict[str, tuple[str, int]] = {}
        for name, shared in self.shared.items():
            self._divided |= {tensor: (name, axis) for tensor, axis in _tensors(name, shared).items()}
        self._unit_of = {unit.anchor: unit for unit in units}
        self._quantizable = {name for unit in units for name in unit.activations}
        self._quantizable |= {unit.output for unit in units if unit.quantized_output}
        self.calibrate({})

    def calibrate(self, statistics: Mapping[Statistic, Channels]) -> None:
        """Start anew with other statistics."""
        self._statistics = statistics
        self.factors = functools.cache(self._factors)
        self.constants = functools.cache(self._constants)
        self.float_unit = functools.cache(self._float_unit)

    def op(self, unit: Unit) -> RepairableOp | None:
        """A unit as repairs see it."""
        found = as_repairable(self._graph, unit)
        shared = None if found is None else self.shared.get(found.reads)
        if found is None or shared is None or unit not in shared.units:
            return found
        return replace(found, rescalable=True, written_peak=self._written_peak(shared))

    def with_intermediate_tensors(self, wanted: Sequence[Statistic]) -> list[Statistic]:
        """These statistics, and those of tensors on the way to what is rescaled, whose ranges are divided too."""
        asked = {one.tensor for one in wanted if one.kind == "low"}
        more = [
            Statistic(tensor, kind, axis)
            for name, shared in self.shared.items()
            if name in asked
            for tensor, axis in _tensors(name, shared).items()
            if tensor in self._quantizable
            for kind in ("low", "high")
        ]
        return list(dict.fromkeys([*wanted, *more]))

    def rescaling_repair(self, unit: Unit, repairs: Sequence[str]) -> str | None:
        """The one of these repairs by which what a unit reads is rescaled.

        Of two that one which has a strength: what another one did before would make no difference to smoothing.
        """
        wanted = sorted((one for one in repairs if isinstance(find_repair(one), Rescaling)), key=order)
        if not wanted:
            return None
        op = self.op(unit)
        if op is None or not op.rescalable:
            raise BuildError(
                f"repair {wanted[0]!r} cannot be done to op {unit.op.name!r}, which is a {unit.op.kind}: what it reads "
                "cannot be rescaled"
            )
        return wanted[0]

    def of(self, tensor: str, repair_name: str) -> Float:
        """What the channels of any tensor are divided by for the sake of the one that is rescaled so."""
        return self.factors(self._divided[tensor][0], repair_name)

    def axis(self, tensor: str) -> int:
        """Where the channels of a tensor lie that can be divided."""
        return self._divided[tensor][1]

    def range(self, tensor: str, repair_name: str) -> Range:
        """The range of a tensor whose channels are divided."""
        factors, axis = self.of(tensor, repair_name), self.axis(tensor)
        low, high = (self._statistics[Statistic(tensor, kind, axis)] / factors for kind in ("low", "high"))
        return float(min(low.min(), 0.0)), float(max(high.max(), 0.0))

    def node(self, tensor: str, repair_name: str, source: str, target: str) -> tuple[bytes, Entry]:
        """The node that divides the channels of a tensor, and its constant."""
        by = f"{target}{self._mark}by"
        inverse = (1 / self.of(tensor, repair_name).astype(np.float64)).astype(np.float32)
        constant = protobuf.tensor(by, inverse.reshape(self.shape(tensor)))
        return protobuf.node("Mul", [source, by], [target], target), constant

    def shape(self, tensor: str) -> list[int]:
        """How factors must be shaped to go with a tensor."""
        axis = self.axis(tensor)
        trailing = -1 - axis if axis < 0 else self._graph.ranks[tensor] - 1 - axis
        return [-1, *[1] * trailing]

    def _factors(self, name: str, repair_name: str) -> Float:
        ops = [op for unit in self.shared[name].units if (op := self.op(unit)) is not None]
        return shared_factors(ops, repair_name, self._statistics)

    def _written_peak(self, shared: RescalableTensor) -> Float | None:
        """For each channel the largest weight of the op that makes it, as repairs see it."""
        if shared.divisor is None or shared.divisor.unit is None:
            return None
        op = as_repairable(self._graph, shared.divisor.unit)
        assert op is not None
        return np.asarray(np.abs(op.weight).reshape(len(op.weight), -1).max(axis=1), np.float32)

    def _constants(self, name: str, repair_name: str) -> RepairedUnit:
        """The constants of float nodes that divide the channels of a tensor."""
        divisor = self.shared[name].divisor
        entries, inputs = [], {}
        for index, slot, trailing, multiplied in divisor.constants if divisor is not None else ():
            node = self._graph.nodes[index]
            factors = self.factors(name, repair_name).reshape(-1, *[1] * trailing)
            before = self._graph.constants[node.input[slot]].astype(np.float64)
            after = before * factors if multiplied else before / factors
            inputs[index, slot] = made = f"{node.output[0]}{self._mark}rescaled {slot}"
            entries.append(self._store.add(made, after.astype(np.float32)))
        return RepairedUnit(b"", tuple(entries), inputs)

    def _float_unit(self, anchor: int, reads: str, writes: str) -> RepairedUnit:
        """The float constants of an op that reads what is rescaled by `reads`, or whose result is by `writes`."""
        unit = self._unit_of[anchor]
        read = self.of(unit.activations[0], reads) if reads else None
        written = self.of(unit.output, writes) if writes else None
        return float_constants(self._graph, self._store, unit, self._mark, read, written)


def _tensors(name: str, shared: RescalableTensor) -> Mapping[str, int]:
    """All that are divided when a tensor is, and the axes of their channels; its own as those count it who read it."""
    return {**(shared.divisor.tensors if shared.divisor is not None else {}), name: shared.axis}
