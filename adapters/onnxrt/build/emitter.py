"""The emitter: one pass over the graph that writes the model a plan describes.

Each node of the graph becomes serialized nodes and constants: unchanged, with renamed inputs, or in an int8 form. The
builder (`build/builder.py`) has serialized what is the same in all configurations. Each name is emitted once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from onnx import NodeProto

from quaver.adapters.onnxrt.build import protobuf
from quaver.adapters.onnxrt.build.affine import Float
from quaver.adapters.onnxrt.build.dynamic_and_weight_only import float_io_op
from quaver.adapters.onnxrt.build.float_outputs import guard
from quaver.adapters.onnxrt.build.integer_ops import embedding_parts, passthrough_parts
from quaver.adapters.onnxrt.build.plan import Plan, Scheme
from quaver.adapters.onnxrt.build.repairs import RepairedUnit
from quaver.adapters.onnxrt.build.serialized_model import SerializedModel, merged
from quaver.adapters.onnxrt.build.weight_store import Entry, WeightParts
from quaver.adapters.onnxrt.ops.unit import Unit
from quaver.ops import OpConfig, QuantConfig

if TYPE_CHECKING:
    from quaver.adapters.onnxrt.build.builder import Builder


class Emitter(Plan):
    """Emits the nodes and constants of one configuration, in graph order.

    Attributes:
        nodes: the serialized nodes so far.
        entries: the other entries of the graph so far: constants, and outputs that are added.
        emitted: names of the constants, tensors and nodes emitted so far.
        replaced: by node index and input slot, the name that a repaired node reads instead.
        uses_ort_domain: True once a node is one of ONNX Runtime's own operators.
    """

    def __init__(self, builder: Builder, config: QuantConfig | None) -> None:
        super().__init__(builder, config)
        self.nodes: list[Entry] = []
        self.entries: list[Entry] = []
        self.emitted: set[str] = set()
        self.replaced: dict[int, dict[int, str]] = {}
        self.uses_ort_domain = False
        self._rescale_at_source()

    def run(self, outputs: tuple[str, ...]) -> SerializedModel:
        """Emit all nodes, and return the model with these float tensors as outputs besides its own."""
        builder = self.builder
        self.run_part(range(len(builder.graph.nodes)), builder.captured_constants)
        for value in builder.graph.outputs:
            if value.name in builder.graph.constants:
                self._emit_constant(value.name)
        return self.finish(outputs)

    def run_part(self, indices: Iterable[int], captured: Iterable[str]) -> None:
        """Emit some nodes, in graph order, and those constants among the tensors that their bodies capture."""
        for index in indices:
            self._emit(index)
        for name in captured:
            if name in self.builder.graph.constants:
                self._emit_constant(name)

    def finish(self, outputs: tuple[str, ...]) -> SerializedModel:
        """Join what was emitted so far."""
        shell, graph_end = self.builder.frame(self.uses_ort_domain)
        extra = b"".join(protobuf.float_output(name) for name in outputs)
        return SerializedModel(
            shell + self.properties, tuple(merged([*self.nodes, *self.entries, graph_end + extra])), self.builder.store
        )

    def visible(self, name: str) -> str:
        """Return the name under which readers see a tensor: dequantized if its producer writes uint8."""
        return self._dequantized_tensor(name) if self.is_uint8(name) else name

    def quantized_copy(self, name: str, scheme: Scheme, mark: str, source: str | None = None) -> str:
        """Quantize and dequantize a tensor on a side branch, independently of the configuration."""
        builder, root = self.builder, self.builder.root(name)
        params = builder.parameters(root, scheme)
        quantized, result, by_scale, by_zero = (f"{name}{mark}{part}" for part in ("q", "dq", "scale", "zero"))
        if result not in self.emitted:
            self.emitted.add(result)
            self.nodes.append(
                protobuf.node("QuantizeLinear", [source or name, by_scale, by_zero], [quantized], quantized)
                + protobuf.node("DequantizeLinear", [quantized, by_scale, by_zero], [result], result)
            )
            self.entries.append(protobuf.tensor(by_scale, params.scale) + protobuf.tensor(by_zero, params.zero_point))
        return result

    def constant_copy(self, unit: Unit, choice: OpConfig, slot: int, scheme: Scheme) -> str:
        """Emit the int8 weight or bias of a unit, independently of the configuration, and return its name."""
        self.schemes[self.builder.root(unit.activations[0])] = scheme
        assert unit.weight is not None
        return self._int8_input(unit, choice, slot, (unit.weight if slot == 1 else unit.bias) or "")

    def repair(self, unit: Unit, choice: OpConfig, scheme: Scheme, output_rescaling: str = "") -> None:
        """Emit the constants of a unit with repairs, or with an output that the repair of a later op rescales."""
        per_channel = choice.granularity == "per_channel"
        self._replace(self.builder.repaired(unit.anchor, scheme, per_channel, choice.repairs, output_rescaling))

    def _replace(self, repaired: RepairedUnit) -> None:
        self.nodes.append(repaired.nodes)
        self.entries.extend(repaired.entries)
        for (index, slot), name in repaired.inputs.items():
            self.replaced.setdefault(index, {})[slot] = name

    def _rescale_at_source(self) -> None:
        """Divide rescaled tensors by constants of their producers, and compensate in the ops that stay fp32."""
        rescaler = self.builder.rescaler
        reads: dict[int, str] = {}
        for name, repair_name in self.rescaled_at_source.items():
            units, _, absorber = rescaler.rescalable[name]
            self._replace(rescaler.constants(name, repair_name))
            reads |= {unit.anchor: repair_name for unit in units if unit.anchor not in self.static_choices}
            absorbing = None if absorber is None else absorber.unit
            if absorbing is not None and absorbing.anchor not in self.static_choices:
                reads.setdefault(absorbing.anchor, "")
        for anchor, repair_name in reads.items():
            output_rescaling = self.output_rescaling(self.builder.unit_of[anchor])
            self._replace(rescaler.float_unit(anchor, repair_name, output_rescaling))

    def rescale(self, name: str, repair_name: str, target: str) -> str:
        """Divide the channels of a tensor, once, and return the name of the result."""
        if target not in self.emitted:
            self.emitted.add(target)
            node, constant = self.builder.rescaler.division(name, repair_name, self._float_input(name), target)
            self.nodes.append(node)
            self.entries.append(constant)
        return target

    def emit_embedding(self, unit: Unit, choice: OpConfig, target: str, mark: str = "") -> None:
        """Emit a unit that looks up rows of an int8 table, and writes them to `target`."""
        parts = embedding_parts(self.builder, unit, choice, target, mark)
        self.nodes.append(parts.nodes)
        self._add(parts.entries)
        self.uses_ort_domain |= parts.uses_ort_domain

    def emit_float_io(self, unit: Unit, choice: OpConfig, source: str, target: str, mark: str = "") -> None:
        """Emit the anchor of a dynamic or weight-only unit; it reads float `source` and writes float `target`."""
        parts = float_io_op(self.builder, unit, choice, source, target, mark)
        for name, node in parts.shared:
            if name not in self.emitted:
                self.emitted.add(name)
                self.nodes.append(node)
        self.nodes.append(parts.nodes)
        self._add(parts.entries)
        for name in parts.reads:
            self._float_input(name)
        self.uses_ort_domain |= parts.uses_ort_domain

    def _add(self, entries: Iterable[tuple[str, Entry]]) -> None:
        for name, entry in entries:
            if name not in self.emitted:
                self.emitted.add(name)
                self.entries.append(entry)

    def emit_hard_sigmoid_clip(self, unit: Unit, source: str, target: str) -> None:
        """Emit a HardSigmoid as a Clip of the integers `source`; the clipped integers have a scale of their own."""
        builder = self.builder
        clipped = builder.clipped(self.schemes[builder.root(unit.output)])
        assert clipped is not None
        names = [builder.label(unit.output, part) for part in ("low", "high")]
        self.nodes.append(protobuf.node("Clip", [source, *names], [target], builder.graph.nodes[unit.anchor].name))
        self.entries.extend(map(protobuf.tensor, names, (clipped.low, clipped.high)))

    def emit_passthrough(self, unit: Unit, scheme: Scheme, source: str, target: str, mark: str = "") -> None:
        """Emit a passthrough unit on the integers `source`; `target` keeps the scale of the tensor it reads."""
        parameters = self.builder.parameters(self.builder.root(unit.activations[0]), scheme)
        parts = passthrough_parts(self.builder, unit, parameters, source, target, mark)
        self.nodes.append(parts.node)
        self.entries.append(parts.constants)
        for name in parts.reads:
            self._float_input(name)

    def operand(self, name: str) -> str:
        """Emit a constant operand in uint8, once, and return the name of its dequantized form."""
        parts = self.builder.store.operand(name)
        if parts.name not in self.emitted:
            self.emitted.add(parts.name)
            self.nodes.append(parts.node)
            self.entries.extend(parts.entries)
        return parts.name

    def _emit(self, index: int) -> None:
        node = self.builder.graph.nodes[index]
        static = self._static_op(index)
        if index in self.float_io_choices:
            unit, choice = self.builder.unit_of[index], self.float_io_choices[index]
            self.emit_float_io(unit, choice, self._float_source(unit, choice), self.raw_name(node.output[0]))
        elif static is None or not self._emit_on_integers(*static):
            self._emit_node(index, static)
        self._emit_names(node)

    def _static_op(self, index: int) -> tuple[Unit, OpConfig] | None:
        """Return the op that a node is the anchor of, with its choice, if its tensors are quantized."""
        choice, unit = self.static_choices.get(index), self.builder.unit_of.get(index)
        return None if choice is None or unit is None else (unit, choice)

    def _emit_on_integers(self, unit: Unit, choice: OpConfig) -> bool:
        """Emit an op that works on integers directly; return False if it is emitted between QDQ pairs instead."""
        integers = self.builder.label(unit.output, "q")
        if unit.is_embedding:
            self.emit_embedding(unit, choice, integers if unit.writes_integers_as(choice) else unit.output)
        elif unit.is_passthrough and not choice.repairs:
            (name,) = unit.activations
            source = self._quantized_tensor(name)
            self.emit_passthrough(unit, self.schemes[self.builder.root(name)], source, integers)
        elif unit.hard_sigmoid is not None and unit.output in self.integer_outputs:
            self.emit_hard_sigmoid_clip(unit, self._quantized_tensor(unit.activations[0]), integers)
        else:
            return False
        return True

    def _emit_node(self, index: int, static: tuple[Unit, OpConfig] | None) -> None:
        """Emit a node with the inputs and outputs that the plan gives it."""
        builder, node = self.builder, self.builder.graph.nodes[index]
        if static is not None:
            self._repair_if_planned(*static)
        renamed = self._renamed_inputs(index, static)
        if static is None:
            self._guard(index, renamed)
        if index in builder.cubic and self.static_choices:
            self._keep_layout(node, renamed)
        outputs = [(slot, new) for slot, name in enumerate(node.output) if (new := self.raw_name(name)) != name]
        read = dict(renamed).get(0, node.input[0] if node.input else "")
        if static is not None and static[0].hard_sigmoid is not None:
            self.nodes.append(builder.table_node(index, read, self.raw_name(static[0].output)))
        elif static is not None and static[0].op.kind == "ReduceMean":
            self.nodes.append(builder.pool_nodes(index, read, self.raw_name(static[0].output)))
        else:
            self.nodes.append(builder.node(index, tuple(renamed), tuple(outputs)))

    def _repair_if_planned(self, unit: Unit, choice: OpConfig) -> None:
        """Emit the repaired constants of an op that has repairs, or whose output is rescaled."""
        output_rescaling = self.output_rescaling(unit)
        if choice.repairs or output_rescaling:
            read = self.read_by(unit, unit.activations[0])
            self.repair(unit, choice, self.schemes[self.builder.root(read)], output_rescaling)

    def _renamed_inputs(self, index: int, static: tuple[Unit, OpConfig] | None) -> list[tuple[int, str]]:
        """Emit what a node reads, and return the slots that read another name than in the graph."""
        replaced = self.replaced.get(index, {})
        renamed = list(replaced.items())
        for slot, name in enumerate(self.builder.graph.nodes[index].input):
            if not name or slot in replaced:
                continue
            new = self._float_input(name) if static is None else self._int8_input(*static, slot, name)
            if index in self.builder.moved and slot == 0 and self.is_exposed(name):
                new = self._behind_guard(new)
            if new != name:
                renamed.append((slot, new))
        return renamed

    def _float_source(self, unit: Unit, choice: OpConfig) -> str:
        """Return what a dynamic or weight-only op reads, kept apart from a dequantized weight by a guard."""
        (name,) = unit.activations
        source = self._float_input(name)
        is_quantized = self.builder.root(name) in self.uint8_outputs
        is_fused = choice.mode == "weight_only" and not choice.block_size
        return self._behind_guard(source) if is_quantized and is_fused else source

    def _emit_names(self, node: NodeProto) -> None:
        """Restore the names of outputs that must stay, where the node writes them under another name."""
        builder = self.builder
        for name in node.output:
            if name in self.guarded:
                self._emit_guard(self.raw_name(name), name, builder.label(name, "guard"))
            elif self.is_repinned(name):
                source = self._dequantized_tensor(name)
                if source != name:  # the optimiser may inline the body of an If, and then fuse it
                    self._emit_guard(source, name, builder.label(name, "guard"))

    def _int8_input(self, unit: Unit, choice: OpConfig, slot: int, name: str) -> str:
        """Emit what an int8 op reads in a slot, and return its name."""
        builder = self.builder
        if name in unit.activations:
            read = self.read_by(unit, name)
            if read != name:
                self.rescale(name, self.rescaled_inputs[unit.anchor], read)
            return self._dequantized_tensor(read)
        if name == unit.operand:
            return self.operand(name)
        per_channel = choice.granularity == "per_channel"
        axis = unit.axis if per_channel else None
        wider: Float | None = None
        owner = ""
        if unit.bias is not None:
            scheme = self.schemes[builder.root(unit.activations[0])]
            node, entries, wider = builder.bias(unit.anchor, scheme, per_channel)
            owner = unit.op.name
            if slot == 2 and name == unit.bias:
                self.nodes.append(node)
                self.entries.extend(entries)
                return builder.label(unit.op.name, "bias")
        if slot == 1 and name == unit.weight:
            weight = builder.store.int8(name, axis, wider, owner, builder.reduction(unit))
            if weight.name not in self.emitted:
                self.emitted.add(weight.name)
                self.nodes.append(weight.node)
                self._emit_weight_integers(weight)
                self.entries.extend(weight.entries[1:])
            return weight.name
        return self._float_input(name)

    def _emit_weight_integers(self, weight: WeightParts) -> None:
        """Emit the integers of a weight, unless an embedding table is the same constant and was emitted before."""
        if weight.integers not in self.emitted:
            self.emitted.add(weight.integers)
            self.entries.append(weight.entries[0])

    def _float_input(self, name: str) -> str:
        if name in self.builder.graph.constants:
            self._emit_constant(name)
            return name
        if self.is_uint8(name):
            return self._dequantized_tensor(name)
        return name

    def _emit_constant(self, name: str) -> None:
        if name in self.emitted:
            return
        self.emitted.add(name)
        table = self.builder.graph.tied.get(name)
        if table is None:
            self.entries.append(self.builder.store.constant(name))
        else:
            self._emit_constant(table)
            self.nodes.append(protobuf.node("Transpose", [table], [name], self.builder.label(name, "transposed")))

    def _dequantized_tensor(self, name: str) -> str:
        """Quantize and dequantize a tensor, once, and return the name of the result."""
        builder = self.builder
        is_repinned = self.is_repinned(name)
        target = name if is_repinned and name not in builder.graph.captured else builder.label(name, "dq")
        self._quantized_tensor(name)
        if (dequantized := builder.label(name, "dq")) not in self.emitted:
            self.emitted.add(dequantized)
            self.nodes.append(builder.dequantize(name, target))
            self._emit_scales(builder.root(name))
        return target

    def _quantized_tensor(self, name: str) -> str:
        """Quantize a tensor, once, unless its producer writes integers, and return the name of the integers."""
        builder = self.builder
        quantized = builder.label(name, "q")
        if quantized not in self.emitted:
            self.emitted.add(quantized)
            if name not in self.integer_outputs:
                source = self.raw_name(name) if self.is_repinned(name) else name
                if self.is_exposed(name):
                    source = self._behind_guard(source)
                by_table = name in self.requantized
                self.nodes.append(builder.quantize(name, source, by_table))
                if by_table:
                    self.entries.append(builder.table_scales(name))
                self._emit_scales(builder.root(name))
        return quantized

    def _emit_scales(self, root: str) -> None:
        if (scale := self.builder.label(root, "scale")) not in self.emitted:
            self.emitted.add(scale)
            self.entries.append(self.builder.scales(root, self.schemes[root]))

    def _guard(self, index: int, renamed: list[tuple[int, str]]) -> None:
        """Keep the optimiser from turning a float op back into int8: no pass of it looks through a Max."""
        node = self.builder.graph.nodes[index]
        for slot in self.fusing_slots(index, node):
            guarded = self._behind_guard(dict(renamed).get(slot, node.input[slot]))
            renamed[:] = [entry for entry in renamed if entry[0] != slot] + [(slot, guarded)]

    def _keep_layout(self, node: NodeProto, renamed: list[tuple[int, str]]) -> None:
        """Keep the optimiser from moving the channels of a cubic Resize's input to the last axis.

        Int8 convolutions have their channels last. The optimiser moves the Transpose after such a convolution past a
        cubic Resize, whose kernel cannot shrink the axes it then gets. An Einsum that only copies is exact, and the
        Transpose stays before it.
        """
        source = dict(renamed).get(0, node.input[0])
        target = self.builder.label(node.output[0], "layout")
        self.nodes.append(protobuf.node("Einsum", [source], [target], target, equation="...->..."))
        renamed[:] = [(slot, name) for slot, name in renamed if slot != 0] + [(0, target)]

    def _behind_guard(self, source: str) -> str:
        if source in self.guarded:  # there is a guard before it already
            return source
        guarded = self.builder.label(source, "guard")
        if guarded not in self.emitted:
            self.emitted.add(guarded)
            self._emit_guard(source, guarded, guarded)
        return guarded

    def _emit_guard(self, source: str, target: str, name: str) -> None:
        node, constants = guard(self.builder, source, target, name)
        self.nodes.append(node)
        self._add(constants)
