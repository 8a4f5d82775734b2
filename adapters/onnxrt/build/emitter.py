"""One walk over the nodes of a graph: the bytes of the model that a plan describes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from onnx import NodeProto

from quaver.adapters.onnxrt.build import protobuf as wire
from quaver.adapters.onnxrt.build.affine import Float
from quaver.adapters.onnxrt.build.dynamic_and_weight_only import between_floats
from quaver.adapters.onnxrt.build.integer_ops import carry, look_up
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

    def __init__(self, assembler: Builder, config: QuantConfig | None) -> None:
        super().__init__(assembler, config)
        self.parts: list[Entry] = []
        self.entries: list[Entry] = []
        self.done: set[str] = set()
        self.replaced: dict[int, dict[int, str]] = {}  # of nodes that are repaired, what slots read instead
        self.foreign = False  # whether a node is of ONNX Runtime's own operators
        self._absorb()

    def run(self, outputs: tuple[str, ...]) -> SerializedModel:
        """Walk over all nodes; the result gives out these float tensors besides the model's outputs."""
        assembler = self.assembler
        for index in range(len(assembler.graph.nodes)):
            self._emit(index)
        for name in assembler.captured_constants:
            self._constant(name)
        for value in assembler.graph.outputs:
            if value.name in assembler.graph.constants:
                self._constant(value.name)
        return self.finish(outputs)

    def finish(self, outputs: tuple[str, ...]) -> SerializedModel:
        """Join what was emitted so far."""
        shell, tail = self.assembler.frame(self.foreign)
        extra = b"".join(wire.float_output(name) for name in outputs)
        return SerializedModel(shell, tuple(merged([*self.parts, *self.entries, tail + extra])), self.assembler.store)

    def visible(self, name: str) -> str:
        """The name under which readers see a tensor: dequantized if its producer writes uint8."""
        return self._quantized(name) if name in self.flowing and self.assembler.root(name) in self.written else name

    def quantized_copy(self, name: str, scheme: Scheme, mark: str, source: str | None = None) -> str:
        """Quantize and dequantize a tensor aside, whatever the configuration does to it."""
        assembler, root = self.assembler, self.assembler.root(name)
        params = assembler.params(root, scheme)
        quantized, result, by_scale, by_zero = (f"{name}{mark}{part}" for part in ("q", "dq", "scale", "zero"))
        if result not in self.done:
            self.done.add(result)
            self.parts.append(
                wire.node("QuantizeLinear", [source or name, by_scale, by_zero], [quantized], quantized)
                + wire.node("DequantizeLinear", [quantized, by_scale, by_zero], [result], result)
            )
            self.entries.append(wire.tensor(by_scale, params.scale) + wire.tensor(by_zero, params.zero_point))
        return result

    def constant_copy(self, unit: Unit, pick: OpConfig, slot: int, scheme: Scheme) -> str:
        """The int8 weight or bias of a unit, whatever the configuration does to it."""
        self.schemes[self.assembler.root(unit.activations[0])] = scheme
        assert unit.weight is not None
        return self._int8_input(unit, pick, slot, (unit.weight if slot == 1 else unit.bias) or "")

    def repair(self, unit: Unit, pick: OpConfig, scheme: Scheme, divided: str = "") -> None:
        """Emit the constants of a unit that is repaired, or whose result is `divided` by a repair of those behind."""
        per_channel = pick.granularity == "per_channel"
        self._replace(self.assembler.repaired(unit.anchor, scheme, per_channel, pick.repairs, divided))

    def _replace(self, made: RepairedUnit) -> None:
        self.parts.append(made.nodes)
        self.entries.extend(made.entries)
        for (index, slot), name in made.inputs.items():
            self.replaced.setdefault(index, {})[slot] = name

    def _absorb(self) -> None:
        """Divide what is rescaled by constants of what makes it. Ops that are left in fp32 make up for it."""
        rescaler = self.assembler.rescaler
        reads: dict[int, str] = {}
        for name, spelled in self.absorbed.items():
            units, _, divisor = rescaler.shared[name]
            self._replace(rescaler.constants(name, spelled))
            reads |= {unit.anchor: spelled for unit in units if unit.anchor not in self.chosen}
            if divisor is not None and divisor.unit is not None and divisor.unit.anchor not in self.chosen:
                reads.setdefault(divisor.unit.anchor, "")
        for anchor, spelled in reads.items():
            divided = self.division(self.assembler.unit_of[anchor])
            self._replace(rescaler.float_unit(anchor, spelled, divided))

    def division(self, unit: Unit) -> str:
        """The repair that the result of an op with a weight is divided by; empty if none does."""
        return self.divided.get(unit.output, "") if unit.weight is not None else ""

    def rescale(self, name: str, spelled: str, target: str) -> str:
        """Divide the channels of a tensor, once; returns the name of the result."""
        if target not in self.done:
            self.done.add(target)
            node, constant = self.assembler.rescaler.node(name, spelled, self._float_input(name), target)
            self.parts.append(node)
            self.entries.append(constant)
        return target

    def look_up(self, unit: Unit, pick: OpConfig, target: str, mark: str = "") -> None:
        """Emit a unit that looks rows up in a table of integers, and writes them to `target`."""
        made = look_up(self.assembler, unit, pick, target, mark)
        self.parts.append(made.nodes)
        self._add(made.entries)
        self.foreign |= made.foreign

    def run_between_floats(self, unit: Unit, pick: OpConfig, source: str, target: str, mark: str = "") -> None:
        """Emit the anchor of a unit that makes the float tensor `target` of the float tensor `source`."""
        made = between_floats(self.assembler, unit, pick, source, target, mark)
        for name, node in made.shared:
            if name not in self.done:
                self.done.add(name)
                self.parts.append(node)
        self.parts.append(made.nodes)
        self._add(made.entries)
        for name in made.reads:
            self._float_input(name)
        self.foreign |= made.foreign

    def _add(self, entries: Iterable[tuple[str, Entry]]) -> None:
        for name, entry in entries:
            if name not in self.done:
                self.done.add(name)
                self.entries.append(entry)

    def cut_off(self, unit: Unit, source: str, target: str) -> None:
        """Emit a HardSigmoid as a Clip of the integers `source`, which stand for something else behind it."""
        assembler = self.assembler
        found = assembler.gated(self.schemes[assembler.root(unit.output)])
        assert found is not None
        names = [assembler.label(unit.output, part) for part in ("low", "high")]
        self.parts.append(wire.node("Clip", [source, *names], [target], assembler.graph.nodes[unit.anchor].name))
        self.entries.extend(map(wire.tensor, names, (found.low, found.high)))

    def carry(self, unit: Unit, scheme: Scheme, source: str, target: str, mark: str = "") -> None:
        """Emit a unit that hands on integers `source` as `target`, in the scale of the tensor it reads."""
        parameters = self.assembler.params(self.assembler.root(unit.activations[0]), scheme)
        made = carry(self.assembler, unit, parameters, source, target, mark)
        self.parts.append(made.node)
        self.entries.append(made.constants)
        for name in made.reads:
            self._float_input(name)

    def operand(self, name: str) -> str:
        """Emit a constant operand in 8 bits, once; returns the name of its dequantized form."""
        made = self.assembler.store.operand(name)
        if made.name not in self.done:
            self.done.add(made.name)
            self.parts.append(made.node)
            self.entries.extend(made.entries)
        return made.name

    def _emit(self, index: int) -> None:
        assembler, pick, unit = self.assembler, self.chosen.get(index), self.assembler.unit_of.get(index)
        if index in self.between_floats:
            unit, pick = assembler.unit_of[index], self.between_floats[index]
            target = self._raw_name(assembler.graph.nodes[index].output[0])
            self.run_between_floats(unit, pick, self._float_source(unit, pick), target)
        elif pick is None or unit is None or unit.anchor != index:
            self._emit_node(index, pick, unit)
        elif unit.is_embedding:
            in_integers = unit.hands_on_integers(pick)
            self.look_up(unit, pick, assembler.label(unit.output, "q") if in_integers else unit.output)
        elif unit.is_passthrough and not pick.repairs:
            (name,) = unit.activations
            source = self._in_integers(name)
            self.carry(unit, self.schemes[assembler.root(name)], source, assembler.label(unit.output, "q"))
        elif unit.gate is not None and unit.output in self.integers:
            self.cut_off(unit, self._in_integers(unit.activations[0]), assembler.label(unit.output, "q"))
        else:
            self._emit_node(index, pick, unit)
        self._emit_names(assembler.graph.nodes[index])

    def _emit_node(self, index: int, pick: OpConfig | None, unit: Unit | None) -> None:
        assembler, node = self.assembler, self.assembler.graph.nodes[index]
        renamed: list[tuple[int, str]] = []
        inputs: Iterable[tuple[int, str]] = enumerate(node.input)
        divided = "" if unit is None else self.division(unit)
        if pick is not None and unit is not None and (pick.repairs or divided):
            self.repair(unit, pick, self.schemes[assembler.root(self.read_by(unit, unit.activations[0]))], divided)
        if index in self.replaced:
            renamed += self.replaced[index].items()
            inputs = [(slot, name) for slot, name in inputs if slot not in self.replaced[index]]
        for slot, name in inputs:
            if not name:
                continue
            if pick is not None and unit is not None and index == unit.anchor:
                new = self._int8_input(unit, pick, slot, name)
            else:
                new = self._float_input(name)
            if index in assembler.moved and slot == 0 and self._is_exposed(name):
                new = self._behind_guard(new)
            if new != name:
                renamed.append((slot, new))
        if pick is None:
            self._guard(index, renamed)
        if index in assembler.cubic and self.chosen:
            self._keep_layout(node, renamed)
        outputs = [(slot, new) for slot, name in enumerate(node.output) if (new := self._raw_name(name)) != name]
        read = dict(renamed).get(0, node.input[0] if node.input else "")
        if pick is not None and unit is not None and unit.gate is not None:
            self.parts.append(assembler.table_node(index, read, self._raw_name(unit.output)))
        elif pick is not None and unit is not None and unit.op.kind == "ReduceMean":
            self.parts.append(assembler.pool_nodes(index, read, self._raw_name(unit.output)))
        else:
            self.parts.append(assembler.node(index, tuple(renamed), tuple(outputs)))

    def _float_source(self, unit: Unit, pick: OpConfig) -> str:
        """What a unit between floats reads. A dequantized tensor beside a dequantized weight would be fused with it."""
        (name,) = unit.activations
        seen = self._float_input(name)
        quantized = self.assembler.root(name) in self.written
        fused = pick.mode == "weight_only" and pick.granularity != PER_BLOCK
        return self._behind_guard(seen) if quantized and fused else seen

    def _emit_names(self, node: NodeProto) -> None:
        """What a node wrote under another name gets the one that others rely on."""
        assembler = self.assembler
        for name in node.output:
            if name in self.loose:
                self.parts.append(wire.node("Max", [self._raw_name(name)], [name], assembler.label(name, "guard")))
            elif self._is_repinned(name):
                seen = self._quantized(name)
                if seen != name:  # a body may be put in place of its If, and then be fused
                    self.parts.append(wire.node("Max", [seen], [name], assembler.label(name, "guard")))

    def _int8_input(self, unit: Unit, pick: OpConfig, slot: int, name: str) -> str:
        assembler = self.assembler
        if name in unit.activations:
            read = self.read_by(unit, name)
            return self._quantized(name if read == name else self.rescale(name, self.rescaled[unit.anchor], read))
        if name == unit.operand:
            return self.operand(name)
        per_channel = pick.granularity == "per_channel"
        axis = unit.axis if per_channel else None
        wider: Float | None = None
        owner = ""
        if unit.bias is not None:
            scheme = self.schemes[assembler.root(unit.activations[0])]
            node, entries, wider = assembler.bias(unit.anchor, scheme, per_channel)
            owner = unit.op.name
            if slot == 2 and name == unit.bias:
                self.parts.append(node)
                self.entries.extend(entries)
                return assembler.label(unit.op.name, "bias")
        if slot == 1 and name == unit.weight:
            weight = assembler.store.int8(name, axis, wider, owner, assembler.reduction(unit))
            if weight.name not in self.done:
                self.done.add(weight.name)
                self.parts.append(weight.node)
                self._integers(weight)
                self.entries.extend(weight.entries[1:])
            return weight.name
        return self._float_input(name)

    def _integers(self, weight: WeightParts) -> None:
        """The integers of a weight, unless a table is the same constant, and they are there already."""
        if weight.integers not in self.done:
            self.done.add(weight.integers)
            self.entries.append(weight.entries[0])

    def _float_input(self, name: str) -> str:
        if name in self.assembler.graph.constants:
            self._constant(name)
            return name
        if name in self.flowing and self.assembler.root(name) in self.written:
            return self._quantized(name)
        return name

    def _constant(self, name: str) -> None:
        if name not in self.done:
            self.done.add(name)
            self.entries.append(self.assembler.store.constant(name))

    def _is_repinned(self, name: str) -> bool:
        """A uint8 tensor whose name others rely on: its dequantized form takes the name, behind a guard in a body."""
        return name in self.assembler.pinned and name in self.flowing and self.assembler.root(name) in self.written

    def _raw_name(self, name: str) -> str:
        """The name under which a node writes what goes by `name` afterwards."""
        return self.assembler.label(name, "float") if name in self.loose or self._is_repinned(name) else name

    def _quantized(self, name: str) -> str:
        """Quantize and dequantize a tensor, once; returns the name of the result."""
        assembler = self.assembler
        repinned = self._is_repinned(name)
        target = name if repinned and name not in assembler.graph.captured else assembler.label(name, "dq")
        self._in_integers(name)
        if (dequantized := assembler.label(name, "dq")) not in self.done:
            self.done.add(dequantized)
            self.parts.append(assembler.dequantize(name, target))
            self._scales(assembler.root(name))
        return target

    def _in_integers(self, name: str) -> str:
        """Quantize a tensor, once, unless it comes in integers; returns the name of these."""
        assembler = self.assembler
        quantized = assembler.label(name, "q")
        if quantized not in self.done:
            self.done.add(quantized)
            if name not in self.integers:
                source = self._raw_name(name) if self._is_repinned(name) else name
                if self._is_exposed(name):
                    source = self._behind_guard(source)
                table = name in self.tables
                self.parts.append(assembler.quantize(name, source, table))
                if table:
                    self.entries.append(assembler.table_scales(name))
                self._scales(assembler.root(name))
        return quantized

    def _scales(self, root: str) -> None:
        if (scale := self.assembler.label(root, "scale")) not in self.done:
            self.done.add(scale)
            self.entries.append(self.assembler.scales(root, self.schemes[root]))

    def _guard(self, index: int, renamed: list[tuple[int, str]]) -> None:
        """Keep the optimiser from putting a float op back into int8.

        A one-input Max on one dequantized input is exact, costs next to nothing and no pass looks through it.
        """
        node = self.assembler.graph.nodes[index]
        for slot in self._fusing_slots(index, node):
            guarded = self._behind_guard(dict(renamed).get(slot, node.input[slot]))
            renamed[:] = [entry for entry in renamed if entry[0] != slot] + [(slot, guarded)]

    def _keep_layout(self, node: NodeProto, renamed: list[tuple[int, str]]) -> None:
        """Keep the optimiser from moving the channels of what a node reads to the end, as int8 convolutions have them.

        It moves the Transpose behind a convolution past a cubic Resize, which then shrinks axes that its kernel cannot
        shrink. An Einsum that copies is exact, and the Transpose stays before it.
        """
        source = dict(renamed).get(0, node.input[0])
        target = self.assembler.label(node.output[0], "layout")
        self.parts.append(wire.node("Einsum", [source], [target], target, equation="...->..."))
        renamed[:] = [(slot, name) for slot, name in renamed if slot != 0] + [(0, target)]

    def _fusing_slots(self, index: int, node: NodeProto) -> list[int]:
        """The inputs of a float node that need a guard. The bodies of local functions are fused like any node."""
        assembler = self.assembler
        if (node.domain, node.op_type) in assembler.functions:
            return [slot for slot, name in enumerate(node.input) if assembler.root(name) in self.written]
        names = assembler.fusing_inputs(index)
        if not names or any(assembler.root(name) not in self.written for name in names):
            return []
        if node.op_type not in _HEAVY and not any(
            assembler.root(name) in self.schemes for name in assembler.tail(index)
        ):
            return []
        return [list(node.input).index(names[0])]

    def _behind_guard(self, source: str) -> str:
        if source in self.loose:  # it has a guard before it already
            return source
        guarded = self.assembler.label(source, "guard")
        if guarded not in self.done:
            self.done.add(guarded)
            self.parts.append(wire.node("Max", [source], [guarded], guarded))
        return guarded

    def _is_exposed(self, name: str) -> bool:
        """A float output of the model that was only moved about and goes on to an int8 op.

        The optimiser would quantize it before it is moved, and so the output too.
        """
        root = self.assembler.root(name)
        return name in self.assembler.moved_outputs and root in self.schemes and root not in self.written
