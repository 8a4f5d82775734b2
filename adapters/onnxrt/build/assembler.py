"""What does not depend on the configuration: made once, and joined anew for each trial."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping

import numpy as np
from onnx import NodeProto

from quaver.adapters.channels import Channels, Statistic
from quaver.adapters.onnxrt.build import four_bits, wire
from quaver.adapters.onnxrt.build.affine import Float, activation_parameters, widened
from quaver.adapters.onnxrt.build.assembly import Assembly
from quaver.adapters.onnxrt.build.gates import Gated, by_table, cut_off
from quaver.adapters.onnxrt.build.plan import TABLE, Scheme
from quaver.adapters.onnxrt.build.provenance import without_provenance
from quaver.adapters.onnxrt.build.recurrent import DOMAIN, coarser_lstm_channels
from quaver.adapters.onnxrt.build.repairing import RepairedUnit, repair_unit
from quaver.adapters.onnxrt.build.rescaling import Rescaler
from quaver.adapters.onnxrt.build.saturation import Reduction, reduction_of
from quaver.adapters.onnxrt.build.walk import Walk
from quaver.adapters.onnxrt.build.weights import Entry, WeightStore
from quaver.adapters.onnxrt.read.graph import Graph, integer
from quaver.adapters.onnxrt.read.movement import families, moves, shrinks_by_cubes
from quaver.adapters.onnxrt.read.units import FUSES_ITSELF, Unit
from quaver.adapters.ranges import Range
from quaver.errors import BuildError
from quaver.ops import OpConfig, QuantConfig
from quaver.processors import Coarsened
from quaver.quantization import QuantizationParameters

Ranges = Mapping[str, Mapping[str, Range]]

# QLinearGlobalAveragePool refuses an input scale of 256 times its output scale. The scales of two equally wide ranges
# differ by a factor of 2 at most (one of them symmetric), so an output range of 1/100 of the input range is enough.
MIN_POOLED_RANGE = 0.01


class Assembler:
    """Builds assemblies of one model. Everything that does not depend on the configuration is done once."""

    def __init__(self, graph: Graph, units: list[Unit], store: WeightStore, mark: str, portable: bool = False) -> None:
        self.graph, self.units, self.store, self.mark = graph, units, store, mark
        self.portable = portable
        self.unit_of = {index: unit for unit in units for index in unit.nodes}
        self.root_of = families(graph)
        self.pinned = graph.pinned
        self.captured_constants = sorted(name for name in graph.captured if name in graph.constants)
        self.moved = {index for index, node in enumerate(graph.nodes) if moves(graph, node)}
        self.functions = {(function.domain, function.name) for function in graph.shell.functions}
        self.moved_outputs = {value.name for value in graph.outputs if graph.producers.get(value.name) in self.moved}
        self.moved_captures = {name for name in graph.captured if graph.producers.get(name) in self.moved}
        self.cubic = {index for index, node in enumerate(graph.nodes) if shrinks_by_cubes(graph, node)}
        self.gates = {unit.output: unit.gate for unit in units if unit.gate is not None}
        self.looked_up = {unit.output: unit.weight for unit in units if unit.looks_up and unit.weight is not None}
        self.rescaler = Rescaler(graph, units, store, mark, self.root_of)
        self.calibrate({})
        self.four_bits = functools.cache(functools.partial(four_bits.constants, self))
        self._raw = [node.SerializeToString(deterministic=True) for node in graph.nodes]
        self._shell, self._tail = _frame(graph)
        self._nodes: dict[tuple[object, ...], bytes] = {}
        self._fusing: dict[int, tuple[str, ...]] = {}

    def root(self, name: str) -> str:
        """The tensor whose scale this one shares."""
        return self.root_of.get(name, name)

    def reduction(self, unit: Unit) -> Reduction | None:
        """Return the sum that must not saturate when a unit runs in int8; None if it cannot, or may."""
        return reduction_of(self.graph, unit) if self.portable else None

    def coarsened(self, config: QuantConfig) -> Coarsened:
        """Count the ops and output channels of a configuration whose weights are coarser so that no sum saturates."""
        plan = Walk(self, config)
        counts = [
            self._coarser_channels(plan, unit, pick)
            for unit in self.units
            if (pick := config[unit.op.name]).reduced and pick.mode != "weight_only"
        ]
        counts = [(channels, coarser) for channels, coarser in counts if channels]
        return Coarsened(
            len(counts),
            sum(coarser > 0 for _, coarser in counts),
            sum(channels for channels, _ in counts),
            sum(coarser for _, coarser in counts),
        )

    def _coarser_channels(self, plan: Walk, unit: Unit, pick: OpConfig) -> tuple[int, int]:
        """Return how many output channels of an int8 op could saturate, and how many of them are coarser."""
        per_channel = pick.granularity == "per_channel"
        if unit.recurrent and self.portable:
            return coarser_lstm_channels(self, unit, per_channel)
        reduction = self.reduction(unit)
        if reduction is None or unit.weight is None:
            return 0, 0
        shape = self.store.array(unit.weight).shape
        channels = math.prod(size for dim, size in enumerate(shape) if dim not in reduction)
        axis, divided = unit.axis if per_channel else None, plan.division(unit)
        if pick.calibrated and (pick.repairs or divided):
            scheme = plan.schemes[self.root(plan.read_by(unit, unit.activations[0]))]
            is_coarser = np.asarray(self.repaired(unit.anchor, scheme, per_channel, pick.repairs, divided).is_coarser)
        else:
            is_coarser = self.store.scale(unit.weight, axis, reduction) > self.store.scale(unit.weight, axis)
        return channels, round(channels * float(np.mean(is_coarser)))

    def needed(self) -> list[str]:
        """The tensors whose range has to be known: what int8 ops read or write, before it was moved about."""
        names = []
        for unit in (unit for unit in self.units if unit.calibrated):
            names += [self.root(name) for name in unit.activations]
            if unit.quantized_output:
                names.append(self.root(unit.output))
        return list(dict.fromkeys(names))

    def calibrate(self, ranges: Ranges, statistics: Mapping[Statistic, Channels] | None = None) -> None:
        """Set the ranges that later assemblies use, and the statistics for repairs, and start their parts anew."""
        self.ranges = self._with_wide_pools(ranges)
        self.statistics = statistics or {}
        self.params = functools.cache(self._params)
        self.scales = functools.cache(self._scales)
        self.quantize = functools.cache(self._quantize)
        self.dequantize = functools.cache(self._dequantize)
        self.bias = functools.cache(self._bias)
        self.repaired = functools.cache(self._repaired)
        self.rescaler.calibrate(self.statistics)

    def _with_wide_pools(self, ranges: Ranges) -> Ranges:
        """Return the ranges, those of global averages so wide that the integer kernel takes their scales.

        The mean of a normalized image is zero but for rounding. A finer scale than this shows nothing but the rounding
        of the input.
        """
        wide = dict(ranges)
        for unit in self.units:
            if self.graph.nodes[unit.anchor].op_type not in ("GlobalAveragePool", "ReduceMean"):
                continue
            source, target = self.root(unit.activations[0]), self.root(unit.output)
            if target not in wide or source not in wide:
                continue
            widths = [max(high, 0.0) - min(low, 0.0) for low, high in wide[source].values()]
            if source in self.gates:  # read by a scale of 0 to 1, whatever the range
                widths.append(1.0)
            width = MIN_POOLED_RANGE * max(widths, default=0.0)
            wide[target] = {method: widened(low, high, width) for method, (low, high) in wide[target].items()}
        return wide

    def assemble(self, config: QuantConfig | None, outputs: tuple[str, ...] = ()) -> Assembly:
        """The model of a configuration; None is all fp32. `outputs` are float tensors to give out besides."""
        return Walk(self, config).run(outputs)

    def _params(self, root: str, scheme: Scheme) -> QuantizationParameters:
        """Scale and zero point of a tensor and all that share its scale."""
        if scheme.gate:
            found = self.gated(scheme)
            assert found is not None
            return found.parameters
        method, kind, source, rescaling, _ = scheme
        source = source or root
        if rescaling:
            return activation_parameters(*self.rescaler.range(source, rescaling), kind)
        if method == TABLE.method:
            return self.store.table_parameters(self.looked_up[source])
        if source in self.gates:
            return activation_parameters(0.0, 1.0, kind)
        try:
            low, high = self.ranges[source][method]
        except KeyError:
            raise BuildError(
                f"tensor {source!r} has no {method} range: calibrate before building int8 models"
            ) from None
        return activation_parameters(low, high, kind)

    def gated(self, scheme: Scheme) -> Gated | None:
        """What is behind a HardSigmoid that only cuts integers off; None if it cannot be done so."""
        reads = self.params(scheme.source, scheme._replace(gate=""))
        return cut_off(reads, *self.gates[scheme.gate])

    def _scales(self, root: str, scheme: Scheme) -> bytes:
        """The two constants that a tensor and all that share its scale are quantized by."""
        found = self.params(root, scheme)
        return wire.tensor(self.label(root, "scale"), found.scale) + wire.tensor(
            self.label(root, "zero"), found.zero_point
        )

    def _quantize(self, name: str, source: str, table: bool = False) -> bytes:
        """The QuantizeLinear of a tensor; with a `table` it reads by another scale than it is read by."""
        root = self.root(name)
        by = [self.label(name, part) for part in ("table scale", "table zero")] if table else self._scaled_by(root)
        return wire.node("QuantizeLinear", [source, *by], [self.label(name, "q")], self.label(name, "Q"))

    def _dequantize(self, name: str, target: str) -> bytes:
        """The DequantizeLinear of a tensor that is there in integers."""
        read = [self.label(name, "q"), *self._scaled_by(self.root(name))]
        return wire.node("DequantizeLinear", read, [target], self.label(name, "DQ"))

    def _scaled_by(self, root: str) -> list[str]:
        return [self.label(root, "scale"), self.label(root, "zero")]

    def table_node(self, index: int, source: str, target: str) -> bytes:
        """In the place of a HardSigmoid that is quantized anew, what does nothing and has a kernel by a table."""
        return wire.node("LeakyRelu", [source], [target], self.graph.nodes[index].name, alpha=1.0)

    def pool_nodes(self, index: int, source: str, target: str) -> bytes:
        """In the place of a ReduceMean over an image, the pooling that it is, which has an integer kernel."""
        node = self.graph.nodes[index]
        if integer(node, "keepdims", 1):
            return wire.node("GlobalAveragePool", [source], [target], node.name)
        pooled, axes = self.label(node.output[0], "pooled"), self.label(node.output[0], "axes")
        return (
            wire.node("GlobalAveragePool", [source], [pooled], node.name)
            + wire.node("Squeeze", [pooled, axes], [target], self.label(node.name, "squeezed"))
            + wire.tensor(axes, np.array([2, 3]))
        )

    def table_scales(self, name: str) -> bytes:
        """The two constants by which the result of a HardSigmoid is quantized, to be read by those of 0 to 1."""
        found = by_table(*self.gates[name])
        return wire.tensor(self.label(name, "table scale"), found.scale) + wire.tensor(
            self.label(name, "table zero"), found.zero_point
        )

    def _bias(self, anchor: int, scheme: Scheme, per_channel: bool) -> tuple[bytes, tuple[Entry, ...], Float | None]:
        """A unit's int8 bias, and the weight scale it needs when it is not the weight's own."""
        unit = self.unit_of[anchor]
        assert unit.weight is not None and unit.bias is not None
        axis = unit.axis if per_channel else None
        step = self.params(self.root(unit.activations[0]), scheme).scale
        scale = self.store.scale(unit.weight, axis, self.reduction(unit))
        wider = self.store.bias_scale(unit.bias, step, scale)
        scale = scale if wider is None else wider
        node, entries = self.store.bias(self.label(unit.op.name, "bias"), unit.bias, step, scale)
        return node, entries, wider

    def _repaired(
        self, anchor: int, scheme: Scheme, per_channel: bool, repairs: tuple[str, ...], divided: str = ""
    ) -> RepairedUnit:
        """A unit with its weight and bias changed before they are quantized; its result is `divided` by a repair."""
        unit = self.unit_of[anchor]
        step = self.params(self.root(unit.activations[0]), scheme).scale
        axis = unit.axis if per_channel else None
        reads = self.rescaler.of(unit.activations[0], scheme.rescaling) if scheme.rescaling else None
        writes = self.rescaler.of(unit.output, divided) if divided else None
        reduction = self.reduction(unit)
        return repair_unit(
            self.graph, self.store, unit, repairs, self.statistics, axis, step, self.mark, reads, writes, reduction
        )

    def label(self, name: str, part: str) -> str:
        """A name for something made from `name`, that the model cannot hold already."""
        return f"{name}{self.mark}{part}"

    def node(self, index: int, inputs: tuple[tuple[int, str], ...], outputs: tuple[tuple[int, str], ...]) -> bytes:
        """A node of the graph with some of its tensors renamed."""
        key = (index, inputs, outputs)
        known = self._nodes.get(key)
        if known is None:
            raw = self._raw[index]
            if inputs or outputs:
                proto = NodeProto.FromString(raw)
                for slot, name in inputs:
                    if slot == len(proto.input):  # a bias where there was none
                        proto.input.append(name)
                    proto.input[slot] = name
                for slot, name in outputs:
                    proto.output[slot] = name
                raw = proto.SerializeToString(deterministic=True)
            known = self._nodes[key] = wire.block(wire.GRAPH_NODE, raw)
        return known

    def fusing_inputs(self, index: int) -> tuple[str, ...]:
        """The activations which, all dequantized, make the optimiser turn this node into int8; empty if none do."""
        known = self._fusing.get(index)
        if known is None:
            node = self.graph.nodes[index]
            known = ()
            if node.op_type in FUSES_ITSELF and node.domain in ("", "ai.onnx"):
                wanted = FUSES_ITSELF[node.op_type]
                names = [name for name in node.input[1 if node.op_type == "Where" else 0 : wanted] if name]
                known = () if any(name in self.graph.constants for name in names) else tuple(names)
            self._fusing[index] = known
        return known

    def tail(self, index: int) -> Iterator[str]:
        """What a node produces, also after a Relu or Clip, which vanish where a QuantizeLinear follows."""
        reader: NodeProto | None = self.graph.nodes[index]
        while reader is not None:
            yield (name := reader.output[0])
            reader = self.graph.only_reader(name)
            reader = reader if reader is not None and reader.op_type in ("Relu", "Clip") else None

    def frame(self, foreign: bool = False) -> tuple[bytes, bytes]:
        """The bytes before the graph, and those of the graph that no configuration changes.

        With `foreign` ops the model says that it needs ONNX Runtime's own operators, unless it does already.
        """
        if foreign and all(entry.domain != DOMAIN[0] for entry in self.graph.shell.opset_import):
            return self._shell + wire.opset(*DOMAIN), self._tail
        return self._shell, self._tail


def _frame(graph: Graph) -> tuple[bytes, bytes]:
    shell = type(graph.shell)()
    shell.CopyFrom(graph.shell)
    tail = shell.graph.SerializeToString(deterministic=True)
    shell.ClearField("graph")
    without_provenance(shell)  # of a model that quaver saved before: it would stand beside the new one
    return shell.SerializeToString(deterministic=True), tail
