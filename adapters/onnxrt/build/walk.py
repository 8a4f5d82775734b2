"""One walk over the nodes of a graph: the bytes of the model that a plan describes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from onnx import NodeProto

from quaver.adapters.onnxrt.build import wire
from quaver.adapters.onnxrt.build.affine import Float
from quaver.adapters.onnxrt.build.assembly import Assembly, merged
from quaver.adapters.onnxrt.build.plan import Plan, Scheme
from quaver.adapters.onnxrt.build.weights import Entry
from quaver.adapters.onnxrt.read.units import Unit
from quaver.ops import OpConfig, QuantConfig

if TYPE_CHECKING:
    from quaver.adapters.onnxrt.build.assembler import Assembler

# Guarded whatever follows: the optimiser folds much into these before it looks for a QuantizeLinear.
_HEAVY = {"Conv", "ConvTranspose", "Gemm", "MatMul"}


class Walk(Plan):
    """Emits the nodes and constants of one configuration, in order."""

    def __init__(self, assembler: Assembler, config: QuantConfig | None) -> None:
        super().__init__(assembler, config)
        self.parts: list[Entry] = []
        self.entries: list[Entry] = []
        self.done: set[str] = set()

    def run(self, outputs: tuple[str, ...]) -> Assembly:
        """Walk over all nodes; the result gives out these float tensors besides the model's outputs."""
        a = self.a
        for index in range(len(a.graph.nodes)):
            self._emit(index)
        for name in a.captured_constants:
            self._constant(name)
        for value in a.graph.outputs:
            if value.name in a.graph.constants:
                self._constant(value.name)
        return self.finish(outputs)

    def finish(self, outputs: tuple[str, ...]) -> Assembly:
        """Join what was emitted so far."""
        shell, tail = self.a.frame()
        extra = b"".join(wire.float_output(name) for name in outputs)
        return Assembly(shell, tuple(merged([*self.parts, *self.entries, tail + extra])), self.a.store)

    def visible(self, name: str) -> str:
        """The name under which readers see a tensor: dequantized if its producer writes uint8."""
        return self._quantized(name) if name in self.flowing and self.a.root(name) in self.written else name

    def quantized_copy(self, name: str, scheme: Scheme, mark: str, source: str | None = None) -> str:
        """Quantize and dequantize a tensor aside, whatever the configuration does to it."""
        a, root = self.a, self.a.root(name)
        scale, zero = a.params(root, scheme)
        quantized, result, by_scale, by_zero = (f"{name}{mark}{part}" for part in ("q", "dq", "scale", "zero"))
        if result not in self.done:
            self.done.add(result)
            self.parts.append(
                wire.node("QuantizeLinear", [source or name, by_scale, by_zero], [quantized], quantized)
                + wire.node("DequantizeLinear", [quantized, by_scale, by_zero], [result], result)
            )
            self.entries.append(wire.tensor(by_scale, np.asarray(scale)) + wire.tensor(by_zero, np.asarray(zero)))
        return result

    def constant_copy(self, unit: Unit, pick: OpConfig, slot: int, scheme: Scheme) -> str:
        """The int8 weight or bias of a unit, whatever the configuration does to it."""
        self.schemes[self.a.root(unit.activations[0])] = scheme
        assert unit.weight is not None
        return self._int8_input(unit, pick, slot, (unit.weight if slot == 1 else unit.bias) or "")

    def _emit(self, index: int) -> None:
        a, node = self.a, self.a.graph.nodes[index]
        pick = self.chosen.get(index)
        unit = a.unit_of.get(index)
        renamed: list[tuple[int, str]] = []
        for slot, name in enumerate(node.input):
            if not name:
                continue
            if pick is not None and unit is not None and index == unit.anchor:
                new = self._int8_input(unit, pick, slot, name)
            else:
                new = self._float_input(name)
            if index in a.moved and slot == 0 and self._is_exposed(name):
                new = self._behind_guard(new)
            if new != name:
                renamed.append((slot, new))
        if pick is None:
            self._guard(index, renamed)
        outputs = [(slot, new) for slot, name in enumerate(node.output) if (new := self._raw_name(name)) != name]
        if pick is not None and unit is not None and unit.table is not None:
            self.parts.append(a.table_node(index, dict(renamed)[0], self._raw_name(unit.output)))
        else:
            self.parts.append(a.node(index, tuple(renamed), tuple(outputs)))
        for name in node.output:
            if name in self.loose:
                self.parts.append(wire.node("Max", [self._raw_name(name)], [name], a.label(name, "guard")))
            elif self._is_repinned(name):
                seen = self._quantized(name)
                if seen != name:  # a body may be put in place of its If, and then be fused
                    self.parts.append(wire.node("Max", [seen], [name], a.label(name, "guard")))

    def _int8_input(self, unit: Unit, pick: OpConfig, slot: int, name: str) -> str:
        a = self.a
        if name in unit.activations:
            return self._quantized(name)
        per_channel = pick.granularity == "per_channel"
        axis = unit.axis if per_channel else None
        wider: Float | None = None
        owner = ""
        if unit.bias is not None:
            scheme = self.schemes[a.root(unit.activations[0])]
            node, entries, wider = a.bias(unit.anchor, scheme, per_channel)
            owner = unit.op.name
            if slot == 2 and name == unit.bias:
                self.parts.append(node)
                self.entries.extend(entries)
                return a.label(unit.op.name, "bias")
        if slot == 1 and name == unit.weight:
            weight = a.store.int8(name, axis, wider, owner)
            if weight.name not in self.done:
                self.done.add(weight.name)
                self.parts.append(weight.node)
                self.entries.extend(weight.entries)
            return weight.name
        return self._float_input(name)

    def _float_input(self, name: str) -> str:
        if name in self.a.graph.constants:
            self._constant(name)
            return name
        if name in self.flowing and self.a.root(name) in self.written:
            return self._quantized(name)
        return name

    def _constant(self, name: str) -> None:
        if name not in self.done:
            self.done.add(name)
            self.entries.append(self.a.store.constant(name))

    def _is_repinned(self, name: str) -> bool:
        """A uint8 tensor whose name others rely on: its dequantized form takes the name, behind a guard in a body."""
        return name in self.a.pinned and name in self.flowing and self.a.root(name) in self.written

    def _raw_name(self, name: str) -> str:
        """The name under which a node writes what goes by `name` afterwards."""
        return self.a.label(name, "float") if name in self.loose or self._is_repinned(name) else name

    def _quantized(self, name: str) -> str:
        """Quantize and dequantize a tensor, once; returns the name of the result."""
        a, root = self.a, self.a.root(name)
        repinned = self._is_repinned(name)
        target = name if repinned and name not in a.graph.captured else a.label(name, "dq")
        if (quantized := a.label(name, "q")) not in self.done:
            self.done.add(quantized)
            source = self._raw_name(name) if repinned else name
            if self._is_exposed(name):
                source = self._behind_guard(source)
            table = name in self.tables
            self.parts.append(a.activation(name, source, target, table))
            if table:
                self.entries.append(a.table_scales(name))
            if (scale := a.label(root, "scale")) not in self.done:
                self.done.add(scale)
                self.entries.append(a.scales(root, self.schemes[root]))
        return target

    def _guard(self, index: int, renamed: list[tuple[int, str]]) -> None:
        """Keep the optimiser from putting a float op back into int8.

        A one-input Max on one dequantized input is exact, costs next to nothing and no pass looks through it.
        """
        node = self.a.graph.nodes[index]
        for slot in self._fusing_slots(index, node):
            guarded = self._behind_guard(dict(renamed).get(slot, node.input[slot]))
            renamed[:] = [entry for entry in renamed if entry[0] != slot] + [(slot, guarded)]

    def _fusing_slots(self, index: int, node: NodeProto) -> list[int]:
        """The inputs of a float node that need a guard. The bodies of local functions are fused like any node."""
        a = self.a
        if (node.domain, node.op_type) in a.functions:
            return [slot for slot, name in enumerate(node.input) if a.root(name) in self.written]
        names = a.fusing_inputs(index)
        if not names or any(a.root(name) not in self.written for name in names):
            return []
        if node.op_type not in _HEAVY and not any(a.root(name) in self.schemes for name in a.tails[index]):
            return []
        return [list(node.input).index(names[0])]

    def _behind_guard(self, source: str) -> str:
        guarded = self.a.label(source, "guard")
        if guarded not in self.done:
            self.done.add(guarded)
            self.parts.append(wire.node("Max", [source], [guarded], guarded))
        return guarded

    def _is_exposed(self, name: str) -> bool:
        """A float output of the model that was only moved about and goes on to an int8 op.

        The optimiser would quantize it before it is moved, and so the output too.
        """
        root = self.a.root(name)
        return name in self.a.moved_outputs and root in self.schemes and root not in self.written
