"""One walk over the nodes of a graph: the bytes of the model that a plan describes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from onnx import NodeProto

from quaver.adapters.onnxrt.build import protobuf
from quaver.adapters.onnxrt.build.affine import Float
from quaver.adapters.onnxrt.build.dynamic_and_weight_only import float_io_op
from quaver.adapters.onnxrt.build.integer_ops import embedding_parts, passthrough_parts
from quaver.adapters.onnxrt.build.plan import Plan, Scheme
from quaver.adapters.onnxrt.build.repairs import RepairedUnit
from quaver.adapters.onnxrt.build.serialized_model import SerializedModel, merged
from quaver.adapters.onnxrt.build.weight_store import Entry, WeightParts
from quaver.adapters.onnxrt.ops.units import Unit
from quaver.ops import PER_BLOCK, OpConfig, QuantConfig

if TYPE_CHECKING:
    from quaver.adapters.onnxrt.build.builder import Builder

# Guarded whatever follows: the optimiser folds much into these before it looks for a QuantizeLinear.
_HEAVY = {"Conv", "ConvTranspose", "Gemm", "MatMul"}


class Emitter(Plan):
    """Emits the nodes and constants of one configuration, in order."""

    def __init__(self, builder: Builder, config: QuantConfig | None) -> None:
        super().__init__(builder, config)
        self.parts: list[Entry] = []
        self.entries: list[Entry] = []
        self.emitted: set[str] = set()
        self.replaced: dict[int, dict[int, str]] = {}  # of nodes that are repaired, what slots read instead
        self.foreign = False  # whether a node is of ONNX Runtime's own operators
        self._absorb()

    def run(self, outputs: tuple[str, ...]) -> SerializedModel:
        """Walk over all nodes; the result gives out these float tensors besides the model's outputs."""
        builder = self.builder
        for index in range(len(builder.graph.nodes)):
            self._emit(index)
        for name in builder.captured_constants:
            self._constant(name)
        for value in builder.graph.outputs:
            if value.name in builder.graph.constants:
                self._constant(value.name)
        return self.finish(outputs)

    def finish(self, outputs: tuple[str, ...]) -> SerializedModel:
        """Join what was emitted so far."""
        shell, tail = self.builder.frame(self.foreign)
        extra = b"".join(protobuf.float_output(name) for name in outputs)
        return SerializedModel(shell, tuple(merged([*self.parts, *self.entries, tail + extra])), self.builder.store)

    def visible(self, name: str) -> str:
        """The name under which readers see a tensor: dequantized if its producer writes uint8."""
        return (
            self._quantized(name)
            if name in self.quantized_tensors and self.builder.root(name) in self.uint8_outputs
            else name
        )

    def quantized_copy(self, name: str, scheme: Scheme, mark: str, source: str | None = None) -> str:
        """Quantize and dequantize a tensor aside, whatever the configuration does to it."""
        builder, root = self.builder, self.builder.root(name)
        params = builder.params(root, scheme)
        quantized, result, by_scale, by_zero = (f"{name}{mark}{part}" for part in ("q", "dq", "scale", "zero"))
        if result not in self.emitted:
            self.emitted.add(result)
            self.parts.append(
                protobuf.node("QuantizeLinear", [source or name, by_scale, by_zero], [quantized], quantized)
                + protobuf.node("DequantizeLinear", [quantized, by_scale, by_zero], [result], result)
            )
            self.entries.append(protobuf.tensor(by_scale, params.scale) + protobuf.tensor(by_zero, params.zero_point))
        return result

    def constant_copy(self, unit: Unit, choice: OpConfig, slot: int, scheme: Scheme) -> str:
        """The int8 weight or bias of a unit, whatever the configuration does to it."""
        self.schemes[self.builder.root(unit.activations[0])] = scheme
        assert unit.weight is not None
        return self._int8_input(unit, choice, slot, (unit.weight if slot == 1 else unit.bias) or "")

    def repair(self, unit: Unit, choice: OpConfig, scheme: Scheme, divided: str = "") -> None:
        """Emit the constants of a unit that is repaired, or whose result is `divided` by a repair of those behind."""
        per_channel = choice.granularity == "per_channel"
        self._replace(self.builder.repaired(unit.anchor, scheme, per_channel, choice.repairs, divided))

    def _replace(self, made: RepairedUnit) -> None:
        self.parts.append(made.nodes)
        self.entries.extend(made.entries)
        for (index, slot), name in made.inputs.items():
            self.replaced.setdefault(index, {})[slot] = name

    def _absorb(self) -> None:
        """Divide what is rescaled by constants of what makes it. Ops that are left in fp32 make up for it."""
        rescaler = self.builder.rescaler
        reads: dict[int, str] = {}
        for name, repair_name in self.rescaled_at_source.items():
            units, _, divisor = rescaler.shared[name]
            self._replace(rescaler.constants(name, repair_name))
            reads |= {unit.anchor: repair_name for unit in units if unit.anchor not in self.static_choices}
            if divisor is not None and divisor.unit is not None and divisor.unit.anchor not in self.static_choices:
                reads.setdefault(divisor.unit.anchor, "")
        for anchor, repair_name in reads.items():
            divided = self.division(self.builder.unit_of[anchor])
            self._replace(rescaler.float_unit(anchor, repair_name, divided))

    def division(self, unit: Unit) -> str:
        """The repair that the result of an op with a weight is divided by; empty if none does."""
        return self.rescaled_tensors.get(unit.output, "") if unit.weight is not None else ""

    def rescale(self, name: str, repair_name: str, target: str) -> str:
        """Divide the channels of a tensor, once; returns the name of the result."""
        if target not in self.emitted:
            self.emitted.add(target)
            node, constant = self.builder.rescaler.node(name, repair_name, self._float_input(name), target)
            self.parts.append(node)
            self.entries.append(constant)
        return target

    def emit_embedding(self, unit: Unit, choice: OpConfig, target: str, mark: str = "") -> None:
        """Emit a unit that looks rows up in a table of integers, and writes them to `target`."""
        made = embedding_parts(self.builder, unit, choice, target, mark)
        self.parts.append(made.nodes)
        self._add(made.entries)
        self.foreign |= made.foreign

    def emit_float_io(self, unit: Unit, choice: OpConfig, source: str, target: str, mark: str = "") -> None:
        """Emit the anchor of a unit that makes the float tensor `target` of the float tensor `source`."""
        made = float_io_op(self.builder, unit, choice, source, target, mark)
        for name, node in made.shared:
            if name not in self.emitted:
                self.emitted.add(name)
                self.parts.append(node)
        self.parts.append(made.nodes)
        self._add(made.entries)
        for name in made.reads:
            self._float_input(name)
        self.foreign |= made.foreign

    def _add(self, entries: Iterable[tuple[str, Entry]]) -> None:
        for name, entry in entries:
            if name not in self.emitted:
                self.emitted.add(name)
                self.entries.append(entry)

    def emit_hard_sigmoid_clip(self, unit: Unit, source: str, target: str) -> None:
        """Emit a HardSigmoid as a Clip of the integers `source`, which stand for something else behind it."""
        builder = self.builder
        found = builder.clipped_scheme(self.schemes[builder.root(unit.output)])
        assert found is not None
        names = [builder.label(unit.output, part) for part in ("low", "high")]
        self.parts.append(protobuf.node("Clip", [source, *names], [target], builder.graph.nodes[unit.anchor].name))
        self.entries.extend(map(protobuf.tensor, names, (found.low, found.high)))

    def emit_passthrough(self, unit: Unit, scheme: Scheme, source: str, target: str, mark: str = "") -> None:
        """Emit a unit that hands on integers `source` as `target`, in the scale of the tensor it reads."""
        parameters = self.builder.params(self.builder.root(unit.activations[0]), scheme)
        made = passthrough_parts(self.builder, unit, parameters, source, target, mark)
        self.parts.append(made.node)
        self.entries.append(made.constants)
        for name in made.reads:
            self._float_input(name)

    def operand(self, name: str) -> str:
        """Emit a constant operand in 8 bits, once; returns the name of its dequantized form."""
        made = self.builder.store.operand(name)
        if made.name not in self.emitted:
            self.emitted.add(made.name)
            self.parts.append(made.node)
            self.entries.extend(made.entries)
        return made.name

    def _emit(self, index: int) -> None:
        builder, choice, unit = self.builder, self.static_choices.get(index), self.builder.unit_of.get(index)
        if index in self.float_io_choices:
            unit, choice = builder.unit_of[index], self.float_io_choices[index]
            target = self._raw_name(builder.graph.nodes[index].output[0])
            self.emit_float_io(unit, choice, self._float_source(unit, choice), target)
        elif choice is None or unit is None or unit.anchor != index:
            self._emit_node(index, choice, unit)
        elif unit.is_embedding:
            in_integers = unit.writes_integers_as(choice)
            self.emit_embedding(unit, choice, builder.label(unit.output, "q") if in_integers else unit.output)
        elif unit.is_passthrough and not choice.repairs:
            (name,) = unit.activations
            source = self._in_integers(name)
            self.emit_passthrough(unit, self.schemes[builder.root(name)], source, builder.label(unit.output, "q"))
        elif unit.hard_sigmoid is not None and unit.output in self.integer_outputs:
            self.emit_hard_sigmoid_clip(unit, self._in_integers(unit.activations[0]), builder.label(unit.output, "q"))
        else:
            self._emit_node(index, choice, unit)
        self._emit_names(builder.graph.nodes[index])

    def _emit_node(self, index: int, choice: OpConfig | None, unit: Unit | None) -> None:
        builder, node = self.builder, self.builder.graph.nodes[index]
        renamed: list[tuple[int, str]] = []
        inputs: Iterable[tuple[int, str]] = enumerate(node.input)
        divided = "" if unit is None else self.division(unit)
        if choice is not None and unit is not None and (choice.repairs or divided):
            self.repair(unit, choice, self.schemes[builder.root(self.read_by(unit, unit.activations[0]))], divided)
        if index in self.replaced:
            renamed += self.replaced[index].items()
            inputs = [(slot, name) for slot, name in inputs if slot not in self.replaced[index]]
        for slot, name in inputs:
            if not name:
                continue
            if choice is not None and unit is not None and index == unit.anchor:
                new = self._int8_input(unit, choice, slot, name)
            else:
                new = self._float_input(name)
            if index in builder.moved and slot == 0 and self._is_exposed(name):
                new = self._behind_guard(new)
            if new != name:
                renamed.append((slot, new))
        if choice is None:
            self._guard(index, renamed)
        if index in builder.cubic and self.static_choices:
            self._keep_layout(node, renamed)
        outputs = [(slot, new) for slot, name in enumerate(node.output) if (new := self._raw_name(name)) != name]
        read = dict(renamed).get(0, node.input[0] if node.input else "")
        if choice is not None and unit is not None and unit.hard_sigmoid is not None:
            self.parts.append(builder.table_node(index, read, self._raw_name(unit.output)))
        elif choice is not None and unit is not None and unit.op.kind == "ReduceMean":
            self.parts.append(builder.pool_nodes(index, read, self._raw_name(unit.output)))
        else:
            self.parts.append(builder.node(index, tuple(renamed), tuple(outputs)))

    def _float_source(self, unit: Unit, choice: OpConfig) -> str:
        """What a unit between floats reads. A dequantized tensor beside a dequantized weight would be fused with it."""
        (name,) = unit.activations
        seen = self._float_input(name)
        quantized = self.builder.root(name) in self.uint8_outputs
        fused = choice.mode == "weight_only" and choice.granularity != PER_BLOCK
        return self._behind_guard(seen) if quantized and fused else seen

    def _emit_names(self, node: NodeProto) -> None:
        """What a node wrote under another name gets the one that others rely on."""
        builder = self.builder
        for name in node.output:
            if name in self.guarded:
                self.parts.append(protobuf.node("Max", [self._raw_name(name)], [name], builder.label(name, "guard")))
            elif self._is_repinned(name):
                seen = self._quantized(name)
                if seen != name:  # a body may be put in place of its If, and then be fused
                    self.parts.append(protobuf.node("Max", [seen], [name], builder.label(name, "guard")))

    def _int8_input(self, unit: Unit, choice: OpConfig, slot: int, name: str) -> str:
        builder = self.builder
        if name in unit.activations:
            read = self.read_by(unit, name)
            return self._quantized(
                name if read == name else self.rescale(name, self.rescaled_inputs[unit.anchor], read)
            )
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
                self.parts.append(node)
                self.entries.extend(entries)
                return builder.label(unit.op.name, "bias")
        if slot == 1 and name == unit.weight:
            weight = builder.store.int8(name, axis, wider, owner, builder.reduction(unit))
            if weight.name not in self.emitted:
                self.emitted.add(weight.name)
                self.parts.append(weight.node)
                self._integers(weight)
                self.entries.extend(weight.entries[1:])
            return weight.name
        return self._float_input(name)

    def _integers(self, weight: WeightParts) -> None:
        """The integers of a weight, unless a table is the same constant, and they are there already."""
        if weight.integers not in self.emitted:
            self.emitted.add(weight.integers)
            self.entries.append(weight.entries[0])

    def _float_input(self, name: str) -> str:
        if name in self.builder.graph.constants:
            self._constant(name)
            return name
        if name in self.quantized_tensors and self.builder.root(name) in self.uint8_outputs:
            return self._quantized(name)
        return name

    def _constant(self, name: str) -> None:
        if name not in self.emitted:
            self.emitted.add(name)
            self.entries.append(self.builder.store.constant(name))

    def _is_repinned(self, name: str) -> bool:
        """A uint8 tensor whose name others rely on: its dequantized form takes the name, behind a guard in a body."""
        return (
            name in self.builder.pinned
            and name in self.quantized_tensors
            and self.builder.root(name) in self.uint8_outputs
        )

    def _raw_name(self, name: str) -> str:
        """The name under which a node writes what goes by `name` afterwards."""
        return self.builder.label(name, "float") if name in self.guarded or self._is_repinned(name) else name

    def _quantized(self, name: str) -> str:
        """Quantize and dequantize a tensor, once; returns the name of the result."""
        builder = self.builder
        repinned = self._is_repinned(name)
        target = name if repinned and name not in builder.graph.captured else builder.label(name, "dq")
        self._in_integers(name)
        if (dequantized := builder.label(name, "dq")) not in self.emitted:
            self.emitted.add(dequantized)
            self.parts.append(builder.dequantize(name, target))
            self._scales(builder.root(name))
        return target

    def _in_integers(self, name: str) -> str:
        """Quantize a tensor, once, unless it comes in integers; returns the name of these."""
        builder = self.builder
        quantized = builder.label(name, "q")
        if quantized not in self.emitted:
            self.emitted.add(quantized)
            if name not in self.integer_outputs:
                source = self._raw_name(name) if self._is_repinned(name) else name
                if self._is_exposed(name):
                    source = self._behind_guard(source)
                table = name in self.requantized
                self.parts.append(builder.quantize(name, source, table))
                if table:
                    self.entries.append(builder.table_scales(name))
                self._scales(builder.root(name))
        return quantized

    def _scales(self, root: str) -> None:
        if (scale := self.builder.label(root, "scale")) not in self.emitted:
            self.emitted.add(scale)
            self.entries.append(self.builder.scales(root, self.schemes[root]))

    def _guard(self, index: int, renamed: list[tuple[int, str]]) -> None:
        """Keep the optimiser from putting a float op back into int8.

        A one-input Max on one dequantized input is exact, costs next to nothing and no pass looks through it.
        """
        node = self.builder.graph.nodes[index]
        for slot in self._fusing_slots(index, node):
            guarded = self._behind_guard(dict(renamed).get(slot, node.input[slot]))
            renamed[:] = [entry for entry in renamed if entry[0] != slot] + [(slot, guarded)]

    def _keep_layout(self, node: NodeProto, renamed: list[tuple[int, str]]) -> None:
        """Keep the optimiser from moving the channels of what a node reads to the end, as int8 convolutions have them.

        It moves the Transpose behind a convolution past a cubic Resize, which then shrinks axes that its kernel cannot
        shrink. An Einsum that copies is exact, and the Transpose stays before it.
        """
        source = dict(renamed).get(0, node.input[0])
        target = self.builder.label(node.output[0], "layout")
        self.parts.append(protobuf.node("Einsum", [source], [target], target, equation="...->..."))
        renamed[:] = [(slot, name) for slot, name in renamed if slot != 0] + [(0, target)]

    def _fusing_slots(self, index: int, node: NodeProto) -> list[int]:
        """The inputs of a float node that need a guard. The bodies of local functions are fused like any node."""
        builder = self.builder
        if (node.domain, node.op_type) in builder.functions:
            return [slot for slot, name in enumerate(node.input) if builder.root(name) in self.uint8_outputs]
        names = builder.fusing_inputs(index)
        if not names or any(builder.root(name) not in self.uint8_outputs for name in names):
            return []
        if node.op_type not in _HEAVY and not any(builder.root(name) in self.schemes for name in builder.tail(index)):
            return []
        return [list(node.input).index(names[0])]

    def _behind_guard(self, source: str) -> str:
        if source in self.guarded:  # it has a guard before it already
            return source
        guarded = self.builder.label(source, "guard")
        if guarded not in self.emitted:
            self.emitted.add(guarded)
            self.parts.append(protobuf.node("Max", [source], [guarded], guarded))
        return guarded

    def _is_exposed(self, name: str) -> bool:
        """A float output of the model that was only moved about and goes on to an int8 op.

        The optimiser would quantize it before it is moved, and so the output too.
        """
        root = self.builder.root(name)
        return name in self.builder.moved_outputs and root in self.schemes and root not in self.uint8_outputs
