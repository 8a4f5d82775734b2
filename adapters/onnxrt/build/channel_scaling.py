"""Channel scaling: the repair that divides the channels of what ops read, in an ONNX graph.

Where the producer of a tensor can divide it by constants that it has (`build/scale_absorber.py`), that costs nothing.
Otherwise a Mul divides a copy of the tensor, which only the rescaled ops read.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from quaver.adapters.calibration.channel_statistics import Channels, Statistic
from quaver.adapters.calibration.ranges import Range
from quaver.adapters.onnxrt.build import protobuf
from quaver.adapters.onnxrt.build.affine import Float
from quaver.adapters.onnxrt.build.repairs import Factors, RepairedUnit, as_repairable, float_constants
from quaver.adapters.onnxrt.build.scale_absorber import AbsorberFinder, ScaleAbsorber
from quaver.adapters.onnxrt.build.weight_store import Entry, WeightStore
from quaver.adapters.onnxrt.load.graph import Graph
from quaver.adapters.onnxrt.ops.unit import Unit
from quaver.adapters.repairs.base import RepairableOp, find_repair, shared_factors
from quaver.adapters.repairs.rescaling import Rescaling
from quaver.errors import BuildError
from quaver.repairs import order


class RescalableTensor(NamedTuple):
    """A tensor whose channels can be rescaled for all ops with weights that read it.

    Attributes:
        units: these ops, in graph order.
        axis: the channel axis of the tensor, as they count it.
        absorber: what can divide the tensor at no cost; None if that takes a Mul.
    """

    units: tuple[Unit, ...]
    axis: int
    absorber: ScaleAbsorber | None


def find_rescalable(
    graph: Graph, units: Sequence[Unit], roots: Mapping[str, str], pinned: Set[str]
) -> dict[str, RescalableTensor]:
    """Return all tensors that can be rescaled, by name.

    A tensor that a convolution reads, or that an int8 op writes as integers, is included only if an absorber exists. A
    Mul
    would cost more than it brings there: the scale is set by the outliers before the Mul could divide them.
    """
    uint8_outputs = {unit.output for unit in units if unit.quantized_output}
    finder = AbsorberFinder(graph, {index: unit for unit in units for index in unit.nodes}, pinned)
    readers: dict[str, list[RepairableOp]] = {}
    by_name = {unit.op.name: unit for unit in units}
    for unit in units:
        op = as_repairable(graph, unit) if unit.has_static_choice else None
        if op is not None:
            readers.setdefault(op.reads, []).append(op)
    rescalable = {}
    for name, ops in readers.items():
        reading = tuple(by_name[op.name] for op in ops)
        channel_layouts = {(op.axis, op.groups * op.weight.shape[1]) for op in ops}
        absorber = None
        if len(channel_layouts) == 1:
            ((axis, channels),) = channel_layouts
            absorber = finder.find(name, axis, channels, {unit.anchor for unit in reading})
        if absorber is None:
            reading = tuple(unit for unit in reading if graph.nodes[unit.anchor].op_type in ("Gemm", "MatMul"))
        if absorber is not None or (reading and roots.get(name, name) not in uint8_outputs):
            rescalable[name] = RescalableTensor(reading, ops[0].axis if absorber is not None else -1, absorber)
    return rescalable


class Rescaler:
    """Rescales tensors of one graph. What does not depend on the calibration is computed once."""

    def __init__(
        self, graph: Graph, units: Sequence[Unit], store: WeightStore, mark: str, roots: Mapping[str, str]
    ) -> None:
        self._graph, self._store, self._mark = graph, store, mark
        self.rescalable = find_rescalable(graph, units, roots, graph.pinned)
        # By tensor that can be divided: the rescalable tensor it is divided for, and its channel axis.
        self._divided: dict[str, tuple[str, int]] = {}
        for name, rescalable in self.rescalable.items():
            self._divided |= {tensor: (name, axis) for tensor, axis in _divided_tensors(name, rescalable).items()}
        self._unit_of = {unit.anchor: unit for unit in units}
        self._quantizable = {name for unit in units for name in unit.activations}
        self._quantizable |= {unit.output for unit in units if unit.quantized_output}
        self.calibrate({})

    def calibrate(self, statistics: Mapping[Statistic, Channels]) -> None:
        """Use other statistics from here on."""
        self._statistics = statistics
        self.factors = functools.cache(self._factors)
        self.constants = functools.cache(self._constants)
        self.float_unit = functools.cache(self._float_unit)

    def repairable_op(self, unit: Unit) -> RepairableOp | None:
        """Return a unit in the form that repairs work on."""
        op = as_repairable(self._graph, unit)
        tensor = None if op is None else self.rescalable.get(op.reads)
        if op is None or tensor is None or unit not in tensor.units:
            return op
        return replace(op, rescalable=True, written_peak=self._written_peak(tensor))

    def with_intermediate_tensors(self, wanted: Sequence[Statistic]) -> list[Statistic]:
        """Add statistics of the tensors that are divided on the way to rescaled ones, and so get other ranges."""
        rescaled = {statistic.tensor for statistic in wanted if statistic.kind == "low"}
        more = [
            Statistic(tensor, kind, axis)
            for name, rescalable in self.rescalable.items()
            if name in rescaled
            for tensor, axis in _divided_tensors(name, rescalable).items()
            if tensor in self._quantizable
            for kind in ("low", "high")
        ]
        return list(dict.fromkeys([*wanted, *more]))

    def rescaling_repair(self, unit: Unit, repairs: Sequence[str]) -> str | None:
        """Return the one of these repairs that rescales the input of a unit, or None.

        Of two, the one with a strength is used: a rescaling before it would make no difference to smoothing.
        """
        wanted = sorted((name for name in repairs if isinstance(find_repair(name), Rescaling)), key=order)
        if not wanted:
            return None
        op = self.repairable_op(unit)
        if op is None or not op.rescalable:
            raise BuildError(
                f"repair {wanted[0]!r} cannot be applied to op {unit.op.name!r}, which is a {unit.op.kind}: its input "
                "cannot be rescaled"
            )
        return wanted[0]

    def factors_of(self, tensor: str, repair_name: str) -> Float:
        """Return the factors that the channels of any divided tensor are divided by."""
        return self.factors(self._divided[tensor][0], repair_name)

    def channel_axis(self, tensor: str) -> int:
        """Return the channel axis of a tensor that can be divided."""
        return self._divided[tensor][1]

    def divided_range(self, tensor: str, repair_name: str) -> Range:
        """Return the range of a tensor whose channels are divided."""
        factors, axis = self.factors_of(tensor, repair_name), self.channel_axis(tensor)
        low, high = (self._statistics[Statistic(tensor, kind, axis)] / factors for kind in ("low", "high"))
        return float(min(low.min(), 0.0)), float(max(high.max(), 0.0))

    def division(self, tensor: str, repair_name: str, source: str, target: str) -> tuple[bytes, Entry]:
        """Return the node that divides the channels of a tensor, and its constant."""
        by = f"{target}{self._mark}by"
        inverse = (1 / self.factors_of(tensor, repair_name).astype(np.float64)).astype(np.float32)
        constant = protobuf.tensor(by, inverse.reshape(self.factor_shape(tensor)))
        return protobuf.node("Mul", [source, by], [target], target), constant

    def factor_shape(self, tensor: str) -> list[int]:
        """Return the shape in which factors broadcast along the channels of a tensor."""
        axis = self.channel_axis(tensor)
        trailing = -1 - axis if axis < 0 else self._graph.ranks[tensor] - 1 - axis
        return [-1, *[1] * trailing]

    def _factors(self, name: str, repair_name: str) -> Float:
        ops = [op for unit in self.rescalable[name].units if (op := self.repairable_op(unit)) is not None]
        return shared_factors(ops, repair_name, self._statistics)

    def _written_peak(self, tensor: RescalableTensor) -> Float | None:
        """Return the largest weight of each channel of the op that writes a tensor."""
        if tensor.absorber is None or tensor.absorber.unit is None:
            return None
        op = as_repairable(self._graph, tensor.absorber.unit)
        assert op is not None
        return np.asarray(np.abs(op.weight).reshape(len(op.weight), -1).max(axis=1), np.float32)

    def _constants(self, name: str, repair_name: str) -> RepairedUnit:
        """Return the constants of float nodes that divide the channels of a tensor."""
        absorber = self.rescalable[name].absorber
        entries, inputs = [], {}
        for index, slot, trailing, is_multiplied in absorber.constants if absorber is not None else ():
            node = self._graph.nodes[index]
            factors = self.factors(name, repair_name).reshape(-1, *[1] * trailing)
            before = self._graph.constants[node.input[slot]].astype(np.float64)
            after = before * factors if is_multiplied else before / factors
            inputs[index, slot] = label = f"{node.output[0]}{self._mark}rescaled {slot}"
            entries.append(self._store.add(label, after.astype(np.float32)))
        return RepairedUnit(b"", tuple(entries), inputs)

    def _float_unit(self, anchor: int, reads: str, writes: str) -> RepairedUnit:
        """Return the float constants of an fp32 op next to rescaled tensors.

        Args:
            anchor: the index of its anchor.
            reads: the repair that rescales its input; empty if none does.
            writes: the repair that rescales its output; empty if none does.
        """
        unit = self._unit_of[anchor]
        factors = Factors(
            reads=self.factors_of(unit.activations[0], reads) if reads else None,
            writes=self.factors_of(unit.output, writes) if writes else None,
        )
        return float_constants(self._graph, self._store, unit, self._mark, factors)


def _divided_tensors(name: str, tensor: RescalableTensor) -> Mapping[str, int]:
    """Return all tensors that are divided together with one, and their channel axes.

    The axis of the tensor itself is counted as its readers count it.
    """
    return {**(tensor.absorber.tensors if tensor.absorber is not None else {}), name: tensor.axis}
