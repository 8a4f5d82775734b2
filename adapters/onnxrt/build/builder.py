"""The builder: everything about a model that does not depend on the configuration, computed once.

A trial differs from the last one in a few nodes. The builder therefore keeps serialized nodes, scales and repaired
constants, and each configuration only joins them (`build/emitter.py`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping
from typing import Protocol

import numpy as np
from onnx import NodeProto

from quaver.adapters.calibration.channel_statistics import Channels, Statistic
from quaver.adapters.calibration.ranges import Range
from quaver.adapters.onnxrt.build import blocks, protobuf
from quaver.adapters.onnxrt.build.affine import Float, activation_parameters, widened
from quaver.adapters.onnxrt.build.channel_scaling import Rescaler
from quaver.adapters.onnxrt.build.emitter import Emitter
from quaver.adapters.onnxrt.build.integer_ops import ClippedIntegers, clipped_integers, requantizing_parameters
from quaver.adapters.onnxrt.build.lstm import DOMAIN, coarser_lstm_channels
from quaver.adapters.onnxrt.build.plan import TABLE, Scheme
from quaver.adapters.onnxrt.build.provenance import without_provenance
from quaver.adapters.onnxrt.build.repairs import Factors, RepairedUnit, RepairRequest, repair_unit
from quaver.adapters.onnxrt.build.rounding import Source
from quaver.adapters.onnxrt.build.saturation import Reduction, reduction_of
from quaver.adapters.onnxrt.build.serialized_model import SerializedModel
from quaver.adapters.onnxrt.build.weight_store import Entry, WeightStore
from quaver.adapters.onnxrt.load.graph import Graph, integer
from quaver.adapters.onnxrt.ops.passthrough import BOUNDED, bounds, is_movement, may_shrink_cubically, scale_roots
from quaver.adapters.onnxrt.ops.unit import ORT_RULES, KernelRules, Unit
from quaver.affine import QuantizationParameters
from quaver.errors import BuildError
from quaver.ops import OpConfig, QuantConfig
from quaver.processors import Coarsened

Ranges = Mapping[str, Mapping[str, Range]]

# QLinearGlobalAveragePool refuses an input scale of 256 times its output scale. The scales of two equally wide ranges
# differ by a factor of 2 at most (one of them symmetric), so an output range of 1/100 of the input range is enough.
MIN_POOLED_RANGE = 0.01


class InputFactors(Protocol):
    """Gives the triangle of `build.rounding.factor` for what weights are multiplied with."""

    def factor(self, source: Source, /) -> Float:
        """Return the triangle."""


class Builder:
    """Builds the models of configurations of one float graph.

    Attributes:
        graph: the float graph.
        units: the ops of the graph.
        store: the constants, quantized on first use.
        mark: a separator that no name of the model contains, for names of new nodes and tensors.
        portable: bound int8 weights so that no sum saturates on processors without VNNI.
        rules: what the runtime turns into int8 by itself.
        unit_of: by node index, the unit that the node belongs to.
        pinned: tensors whose names must stay, because outputs or bodies refer to them.
        moved: indices of nodes that only move values.
        captured_constants: constants that a body reads.
        functions: local functions of the model.
        moved_outputs: outputs of the model that such a node writes.
        moved_captures: tensors that such a node writes and a body reads.
        cubic: indices of cubic Resizes that may make an axis shorter.
        hard_sigmoids: by output, slope and shift of each HardSigmoid.
        embedding_tables: by output of a lookup, the name of its table.
        rescaler: which inputs can be rescaled, and by what.
        moments: the second moments of what products read; None without samples.
    """

    def __init__(
        self,
        graph: Graph,
        units: list[Unit],
        store: WeightStore,
        mark: str,
        portable: bool = False,
        rules: KernelRules = ORT_RULES,
    ) -> None:
        self.graph, self.units, self.store, self.mark = graph, units, store, mark
        self.portable, self.rules = portable, rules
        self.unit_of = {index: unit for unit in units for index in unit.nodes}
        self.root_of = scale_roots(graph)
        self.pinned = graph.pinned
        self.captured_constants = sorted(name for name in graph.captured if name in graph.constants)
        self.moved = {index for index, node in enumerate(graph.nodes) if is_movement(graph, node)}
        self.functions = {(function.domain, function.name) for function in graph.shell.functions}
        self.moved_outputs = {value.name for value in graph.outputs if graph.producers.get(value.name) in self.moved}
        self.moved_captures = {name for name in graph.captured if graph.producers.get(name) in self.moved}
        self.cubic = {index for index, node in enumerate(graph.nodes) if may_shrink_cubically(graph, node)}
        self.hard_sigmoids = {unit.output: unit.hard_sigmoid for unit in units if unit.hard_sigmoid is not None}
        self.embedding_tables = {
            unit.output: unit.weight for unit in units if unit.is_embedding and unit.weight is not None
        }
        self.rescaler = Rescaler(graph, units, store, mark, self.root_of)
        self.moments: InputFactors | None = None
        self.calibrate({})
        self.blocks = functools.cache(functools.partial(blocks.constants, self))
        self._raw = [node.SerializeToString(deterministic=True) for node in graph.nodes]
        self._shell, self._tail = _frame(graph)
        self._nodes: dict[tuple[object, ...], bytes] = {}
        self._fusing: dict[int, tuple[str, ...]] = {}

    def root(self, name: str) -> str:
        """Return the tensor whose scale this one shares, because it is only a moved copy of it."""
        return self.root_of.get(name, name)

    def reduction(self, unit: Unit) -> Reduction | None:
        """Return the weight axes whose sum must not saturate in int8; None if it cannot saturate, or is allowed to."""
        return reduction_of(self.graph, unit) if self.portable else None

    def coarsened(self, config: QuantConfig) -> Coarsened:
        """Count the ops and output channels whose int8 weights have fewer steps so that no sum saturates."""
        plan = Emitter(self, config)
        counts = [
            self._coarser_channels(plan, unit, choice)
            for unit in self.units
            if (choice := config[unit.op.name]).quantized and choice.mode != "weight_only"
        ]
        counts = [(channels, coarser) for channels, coarser in counts if channels]
        return Coarsened(
            len(counts),
            sum(coarser > 0 for _, coarser in counts),
            sum(channels for channels, _ in counts),
            sum(coarser for _, coarser in counts),
        )

    def _coarser_channels(self, plan: Emitter, unit: Unit, choice: OpConfig) -> tuple[int, int]:
        """Return how many output channels of an int8 op could saturate, and how many of them are coarser."""
        per_channel = choice.granularity == "per_channel"
        if unit.is_lstm and self.portable:
            return coarser_lstm_channels(self, unit, per_channel)
        reduction = self.reduction(unit)
        if reduction is None or unit.weight is None:
            return 0, 0
        shape = self.store.array(unit.weight).shape
        channels = math.prod(size for dim, size in enumerate(shape) if dim not in reduction)
        axis, divided = unit.axis if per_channel else None, plan.output_rescaling(unit)
        if choice.calibrated and (choice.repairs or divided):
            scheme = plan.schemes[self.root(plan.read_by(unit, unit.activations[0]))]
            is_coarser = np.asarray(self.repaired(unit.anchor, scheme, per_channel, choice.repairs, divided).is_coarser)
        else:
            is_coarser = self.store.scale(unit.weight, axis, reduction) > self.store.scale(unit.weight, axis)
        return channels, round(channels * float(np.mean(is_coarser)))

    def calibrated_tensors(self) -> list[str]:
        """Return the tensors that need a calibrated range: those that int8 ops read or write.

        A tensor whose values were only moved shares the range of its root.
        """
        names = []
        for unit in (unit for unit in self.units if unit.has_static_choice):
            names += [self.root(name) for name in unit.activations]
            if unit.quantized_output:
                names.append(self.root(unit.output))
        return list(dict.fromkeys(names))

    def calibrate(self, ranges: Ranges, statistics: Mapping[Statistic, Channels] | None = None) -> None:
        """Use these ranges and statistics from here on, and forget what was built from others."""
        self.ranges = self._with_bounds(self._with_wide_pools(ranges))
        self.statistics = statistics or {}
        self.parameters = functools.cache(self._parameters)
        self.scales = functools.cache(self._scales)
        self.quantize = functools.cache(self._quantize)
        self.dequantize = functools.cache(self._dequantize)
        self.bias = functools.cache(self._bias)
        self.repaired = functools.cache(self._repaired)
        self.rescaler.calibrate(self.statistics)

    def _with_wide_pools(self, ranges: Ranges) -> Ranges:
        """Widen the ranges of global averages so that the integer kernel accepts their scales.

        The mean of a normalized image is zero up to rounding. A finer scale would only resolve the rounding errors
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
            if source in self.hard_sigmoids:  # read by a scale of 0 to 1, whatever the range
                widths.append(1.0)
            width = MIN_POOLED_RANGE * max(widths, default=0.0)
            wide[target] = {method: widened(low, high, width) for method, (low, high) in wide[target].items()}
        return wide

    def _with_bounds(self, ranges: Ranges) -> Ranges:
        """Widen the range of what a Clip, Max or Min reads if the bound moves all values out of it.

        The op clips integers and keeps their scale, in which its result has to exist.
        """
        wide = dict(ranges)
        needed: dict[str, list[float]] = {}
        for unit in reversed([unit for unit in self.units if unit.is_passthrough]):
            node, source = self.graph.nodes[unit.anchor], self.root(unit.activations[0])
            values = needed.get(self.root(unit.output), [])
            if node.op_type in BOUNDED and source in wide:
                least, largest = bounds(self.graph, node)
                if least is not None and any(high < least for _, high in wide[source].values()):
                    values = [*values, least]
                if largest is not None and any(low > largest for low, _ in wide[source].values()):
                    values = [*values, largest]
            if values and source in wide:
                needed[source] = [*needed.get(source, []), *values]
                wide[source] = {
                    method: (min(low, *values), max(high, *values)) for method, (low, high) in wide[source].items()
                }
        return wide

    def assemble(self, config: QuantConfig | None, outputs: tuple[str, ...] = ()) -> SerializedModel:
        """Build the model of a configuration; None is all fp32. The tensors `outputs` become outputs, too."""
        return Emitter(self, config).run(outputs)

    def _parameters(self, root: str, scheme: Scheme) -> QuantizationParameters:
        """Return scale and zero point of a tensor and of all that share its scale."""
        if scheme.hard_sigmoid:
            clipped = self.clipped(scheme)
            assert clipped is not None
            return clipped.parameters
        method, kind, source, rescaling, _ = scheme
        source = source or root
        if rescaling:
            return activation_parameters(*self.rescaler.divided_range(source, rescaling), kind)
        if method == TABLE.method:
            return self.store.table_parameters(self.embedding_tables[source])
        if source in self.hard_sigmoids:
            return activation_parameters(0.0, 1.0, kind)
        try:
            low, high = self.ranges[source][method]
        except KeyError:
            raise BuildError(
                f"tensor {source!r} has no {method} range: calibrate before building int8 models"
            ) from None
        return activation_parameters(low, high, kind)

    def clipped(self, scheme: Scheme) -> ClippedIntegers | None:
        """Return the clip of integers that replaces a HardSigmoid; None if a clip is not equivalent."""
        reads = self.parameters(scheme.source, scheme._replace(hard_sigmoid=""))
        return clipped_integers(reads, *self.hard_sigmoids[scheme.hard_sigmoid])

    def _scales(self, root: str, scheme: Scheme) -> bytes:
        """Serialize the scale and zero point of a tensor and of all that share its scale."""
        parameters = self.parameters(root, scheme)
        return protobuf.tensor(self.label(root, "scale"), parameters.scale) + protobuf.tensor(
            self.label(root, "zero"), parameters.zero_point
        )

    def _quantize(self, name: str, source: str, by_table: bool = False) -> bytes:
        """Serialize the QuantizeLinear of a tensor.

        With `by_table` it uses another scale than the readers do: the requantized integers are the result of a
        HardSigmoid.
        """
        root = self.root(name)
        scale_names = (
            [self.label(name, part) for part in ("table scale", "table zero")] if by_table else self._scaled_by(root)
        )
        return protobuf.node("QuantizeLinear", [source, *scale_names], [self.label(name, "q")], self.label(name, "Q"))

    def _dequantize(self, name: str, target: str) -> bytes:
        """Serialize the DequantizeLinear of a tensor."""
        read = [self.label(name, "q"), *self._scaled_by(self.root(name))]
        return protobuf.node("DequantizeLinear", read, [target], self.label(name, "DQ"))

    def _scaled_by(self, root: str) -> list[str]:
        return [self.label(root, "scale"), self.label(root, "zero")]

    def table_node(self, index: int, source: str, target: str) -> bytes:
        """Serialize the identity op that replaces a requantized HardSigmoid: its int8 kernel is a lookup table."""
        return protobuf.node("LeakyRelu", [source], [target], self.graph.nodes[index].name, alpha=1.0)

    def pool_nodes(self, index: int, source: str, target: str) -> bytes:
        """Serialize the GlobalAveragePool that replaces a ReduceMean over an image: it has an integer kernel."""
        node = self.graph.nodes[index]
        if integer(node, "keepdims", 1):
            return protobuf.node("GlobalAveragePool", [source], [target], node.name)
        pooled, axes = self.label(node.output[0], "pooled"), self.label(node.output[0], "axes")
        return (
            protobuf.node("GlobalAveragePool", [source], [pooled], node.name)
            + protobuf.node("Squeeze", [pooled, axes], [target], self.label(node.name, "squeezed"))
            + protobuf.tensor(axes, np.array([2, 3]))
        )

    def table_scales(self, name: str) -> bytes:
        """Serialize the scale and zero point that requantize the input of a HardSigmoid."""
        parameters = requantizing_parameters(*self.hard_sigmoids[name])
        return protobuf.tensor(self.label(name, "table scale"), parameters.scale) + protobuf.tensor(
            self.label(name, "table zero"), parameters.zero_point
        )

    def _bias(self, anchor: int, scheme: Scheme, per_channel: bool) -> tuple[bytes, tuple[Entry, ...], Float | None]:
        """Return a unit's int32 bias, and the wider scale that its weight needs for it, if it needs one."""
        unit = self.unit_of[anchor]
        assert unit.weight is not None and unit.bias is not None
        axis = unit.axis if per_channel else None
        step = self.parameters(self.root(unit.activations[0]), scheme).scale
        scale = self.store.scale(unit.weight, axis, self.reduction(unit))
        wider = self.store.bias_scale(unit.bias, step, scale)
        scale = scale if wider is None else wider
        node, entries = self.store.bias(self.label(unit.op.name, "bias"), unit.bias, step, scale)
        return node, entries, wider

    def _repaired(
        self, anchor: int, scheme: Scheme, per_channel: bool, repairs: tuple[str, ...], output_rescaling: str = ""
    ) -> RepairedUnit:
        """Repair a unit, and quantize its weight and bias after that.

        Args:
            anchor: index of its anchor.
            scheme: how the tensor it reads is quantized.
            per_channel: give each output channel of the weight a scale.
            repairs: the repairs of the unit itself.
            output_rescaling: the repair of later ops that divides what the unit writes; empty if there is none.
        """
        unit, factors_of = self.unit_of[anchor], self.rescaler.factors_of
        request = RepairRequest(
            unit=unit,
            repairs=repairs,
            statistics=self.statistics,
            axis=unit.axis if per_channel else None,
            activation_scale=self.parameters(self.root(unit.activations[0]), scheme).scale,
            factors=Factors(
                reads=factors_of(unit.activations[0], scheme.rescaling) if scheme.rescaling else None,
                writes=factors_of(unit.output, output_rescaling) if output_rescaling else None,
            ),
            reduction=self.reduction(unit),
        )
        return repair_unit(self.graph, self.store, self.mark, request)

    def label(self, name: str, part: str) -> str:
        """Return a name for something made from `name`. No name of the model equals it."""
        return f"{name}{self.mark}{part}"

    def node(self, index: int, inputs: tuple[tuple[int, str], ...], outputs: tuple[tuple[int, str], ...]) -> bytes:
        """Serialize a node of the graph with some of its inputs and outputs renamed."""
        key = (index, inputs, outputs)
        serialized = self._nodes.get(key)
        if serialized is None:
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
            serialized = self._nodes[key] = protobuf.block(protobuf.GRAPH_NODE, raw)
        return serialized

    def fusing_inputs(self, index: int) -> tuple[str, ...]:
        """Return the activations of a node that the runtime fuses into int8 if all of them are dequantized."""
        inputs = self._fusing.get(index)
        if inputs is None:
            node = self.graph.nodes[index]
            inputs = ()
            if node.op_type in self.rules.fused and node.domain in ("", "ai.onnx"):
                count = self.rules.fused[node.op_type]
                names = [name for name in node.input[1 if node.op_type == "Where" else 0 : count] if name]
                inputs = () if any(name in self.graph.constants for name in names) else tuple(names)
            self._fusing[index] = inputs
        return inputs

    def outputs_through_clips(self, index: int) -> Iterator[str]:
        """Yield the output of a node, and of each Relu or Clip after it, which are removed before a QuantizeLinear."""
        reader: NodeProto | None = self.graph.nodes[index]
        while reader is not None:
            yield (name := reader.output[0])
            reader = self.graph.only_reader(name)
            reader = reader if reader is not None and reader.op_type in ("Relu", "Clip") else None

    def frame(self, uses_ort_domain: bool = False) -> tuple[bytes, bytes]:
        """Return the bytes before the graph and at its end. They are the same in all configurations.

        Args:
            uses_ort_domain: declare ONNX Runtime's own operators, unless the model does already.
        """
        if uses_ort_domain and all(entry.domain != DOMAIN[0] for entry in self.graph.shell.opset_import):
            return self._shell + protobuf.opset(*DOMAIN), self._tail
        return self._shell, self._tail


def _frame(graph: Graph) -> tuple[bytes, bytes]:
    shell = type(graph.shell)()
    shell.CopyFrom(graph.shell)
    tail = shell.graph.SerializeToString(deterministic=True)
    shell.ClearField("graph")
    without_provenance(shell)  # a model that quaver saved before would carry two provenances
    return shell.SerializeToString(deterministic=True), tail
