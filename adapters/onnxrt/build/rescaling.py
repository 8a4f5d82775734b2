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

from quaver.adapters.channels import Channels, Statistic
from quaver.adapters.onnxrt.build import wire
from quaver.adapters.onnxrt.build.affine import Float
from quaver.adapters.onnxrt.build.repairing import RepairedUnit, float_constants, repairable
from quaver.adapters.onnxrt.build.weights import Entry, WeightStore
from quaver.adapters.onnxrt.read.divisors import Divisor, DivisorFinder
from quaver.adapters.onnxrt.read.graph import Graph
from quaver.adapters.onnxrt.read.units import Unit
from quaver.adapters.ranges import Range
from quaver.adapters.repairs import RepairableOp, find_repair, shared_factors
from quaver.adapters.rescaling import Rescaling
from quaver.errors import BuildError
from quaver.repairs import order


class Shared(NamedTuple):
    """A tensor whose channels can be rescaled for all ops with weights that read it.

    Attributes:
        units: these ops, in graph order.
        axis: the axis of it that holds channels, as they count it.
        divisor: what can divide it at no cost; None if it takes a Mul.
    """

    units: tuple[Unit, ...]
    axis: int
    divisor: Divisor | None


def find_shared(graph: Graph, units: Sequence[Unit], roots: Mapping[str, str], pinned: Set[str]) -> dict[str, Shared]:
    """All tensors that can be rescaled, by name.

    What convolutions read, and what an int8 op writes in integers, is among them only where that costs nothing. Else a
    Mul would cost more than it brings: outliers have cost the other channels their levels before it could divide.
    """
    written = {unit.output for unit in units if unit.quantized_output}
    finder = DivisorFinder(graph, {index: unit for unit in units for index in unit.nodes}, pinned)
    readers: dict[str, list[RepairableOp]] = {}
    by_name = {unit.op.name: unit for unit in units}
    for unit in units:
        op = repairable(graph, unit) if unit.calibrated else None
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
            found[name] = Shared(reading, ops[0].axis if divisor is not None else -1, divisor)
    return found


class Rescaler:
    """Rescales tensors of one graph. What does not depend on the calibration is found once."""

    def __init__(
        self, graph: Graph, units: Sequence[Unit], store: WeightStore, mark: str, roots: Mapping[str, str]
    ) -> None:
        self._graph, self._store, self._mark = graph, store, mark
        self.shared = find_shared(graph, units, roots, graph.pinned)
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
        found = repairable(self._graph, unit)
        shared = None if found is None else self.shared.get(found.reads)
        if found is None or shared is None or unit not in shared.units:
            return found
        return replace(found, rescalable=True, written_peak=self._written_peak(shared))

    def with_ways(self, wanted: Sequence[Statistic]) -> list[Statistic]:
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

    def wish(self, unit: Unit, repairs: Sequence[str]) -> str | None:
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

    def of(self, tensor: str, spelled: str) -> Float:
        """What the channels of any tensor are divided by for the sake of the one that is rescaled so."""
        return self.factors(self._divided[tensor][0], spelled)

    def axis(self, tensor: str) -> int:
        """Where the channels of a tensor lie that can be divided."""
        return self._divided[tensor][1]

    def range(self, tensor: str, spelled: str) -> Range:
        """The range of a tensor whose channels are divided."""
        factors, axis = self.of(tensor, spelled), self.axis(tensor)
        low, high = (self._statistics[Statistic(tensor, kind, axis)] / factors for kind in ("low", "high"))
        return float(min(low.min(), 0.0)), float(max(high.max(), 0.0))

    def node(self, tensor: str, spelled: str, source: str, target: str) -> tuple[bytes, Entry]:
        """The node that divides the channels of a tensor, and its constant."""
        by = f"{target}{self._mark}by"
        inverse = (1 / self.of(tensor, spelled).astype(np.float64)).astype(np.float32)
        constant = wire.tensor(by, inverse.reshape(self.shape(tensor)))
        return wire.node("Mul", [source, by], [target], target), constant

    def shape(self, tensor: str) -> list[int]:
        """How factors must be shaped to go with a tensor."""
        axis = self.axis(tensor)
        trailing = -1 - axis if axis < 0 else self._graph.ranks[tensor] - 1 - axis
        return [-1, *[1] * trailing]

    def _factors(self, name: str, spelled: str) -> Float:
        ops = [op for unit in self.shared[name].units if (op := self.op(unit)) is not None]
        return shared_factors(ops, spelled, self._statistics)

    def _written_peak(self, shared: Shared) -> Float | None:
        """For each channel the largest weight of the op that makes it, as repairs see it."""
        if shared.divisor is None or shared.divisor.unit is None:
            return None
        op = repairable(self._graph, shared.divisor.unit)
        assert op is not None
        return np.asarray(np.abs(op.weight).reshape(len(op.weight), -1).max(axis=1), np.float32)

    def _constants(self, name: str, spelled: str) -> RepairedUnit:
        """The constants of float nodes that divide the channels of a tensor."""
        divisor = self.shared[name].divisor
        entries, inputs = [], {}
        for index, slot, trailing, multiplied in divisor.constants if divisor is not None else ():
            node = self._graph.nodes[index]
            factors = self.factors(name, spelled).reshape(-1, *[1] * trailing)
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


def _tensors(name: str, shared: Shared) -> Mapping[str, int]:
    """All that are divided when a tensor is, and the axes of their channels; its own as those count it who read it."""
    return {**(shared.divisor.tensors if shared.divisor is not None else {}), name: shared.axis}
