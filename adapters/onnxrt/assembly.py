"""From a configuration to a model: which tensors are quantized, and the bytes of the graph that does it."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from onnx import NodeProto

from quaver.adapters.onnxrt import wire
from quaver.adapters.onnxrt.affine import ActivationParams, Float, activation_params
from quaver.adapters.onnxrt.graph import Graph
from quaver.adapters.onnxrt.units import FUSES_ITSELF, Unit, absorbs, families, moves
from quaver.adapters.onnxrt.weights import Entry, StoredTensor, WeightStore, align
from quaver.adapters.ranges import Range
from quaver.errors import BuildError
from quaver.ops import INT8, OpConfig, QuantConfig

Ranges = Mapping[str, Mapping[str, Range]]

# Guarded whatever follows: the optimiser folds much into these before it looks for a QuantizeLinear.
_HEAVY = {"Conv", "ConvTranspose", "Gemm", "MatMul"}

# A tensor's scheme: calibration method and whether the zero point is free.
Scheme = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Assembly:
    """A model in parts: what comes before the graph, the graph's entries, and where large constants lie."""

    shell: bytes
    graph: tuple[Entry, ...]
    store: WeightStore

    def skeleton(self) -> bytes:
        """The model with its large constants left in the weight file."""
        location = self.store.path.name
        body = b"".join(part.external(location) if isinstance(part, StoredTensor) else part for part in self.graph)
        return self.shell + wire.block(wire.MODEL_GRAPH, body)

    def size(self) -> int:
        """How many bytes the complete model has."""
        body = self._body_size()
        return len(self.shell) + len(wire.head(wire.MODEL_GRAPH, body)) + body

    def chunks(self) -> Iterator[bytes | memoryview]:
        """The complete model, piece by piece, large constants mapped and never copied."""
        yield self.shell
        yield wire.head(wire.MODEL_GRAPH, self._body_size())
        for part in self.graph:
            if isinstance(part, StoredTensor):
                yield part.head()
                yield self.store.read(part)
            else:
                yield part

    def split(self, location: str) -> tuple[bytes, Iterator[bytes | memoryview]]:
        """The model with its large constants in a second file at `location`, and the bytes of that file."""
        placed: dict[str, StoredTensor] = {}
        pieces: list[bytes | StoredTensor] = []
        end = 0
        for part in self.graph:
            if isinstance(part, StoredTensor):
                offset = align(end)
                placed[part.name] = replace(part, offset=offset)
                pieces += [bytes(offset - end), part]
                end = offset + part.nbytes
        body = b"".join(
            placed[part.name].external(location) if isinstance(part, StoredTensor) else part for part in self.graph
        )
        data = (self.store.read(piece) if isinstance(piece, StoredTensor) else piece for piece in pieces)
        return self.shell + wire.block(wire.MODEL_GRAPH, body), data

    def _body_size(self) -> int:
        return sum(
            len(part.head()) + part.nbytes if isinstance(part, StoredTensor) else len(part) for part in self.graph
        )


class Assembler:
    """Builds assemblies of one model. Everything that does not depend on the configuration is done once."""

    def __init__(self, graph: Graph, units: list[Unit], store: WeightStore, mark: str) -> None:
        self.graph, self.units, self.store, self.mark = graph, units, store, mark
        self.unit_of = {index: unit for unit in units for index in unit.nodes}
        self.root_of = families(graph)
        self.pinned = graph.pinned
        self.captured_constants = sorted(name for name in graph.captured if name in graph.constants)
        self.moved = {index for index, node in enumerate(graph.nodes) if moves(graph, node)}
        self.functions = {(function.domain, function.name) for function in graph.shell.functions}
        self.moved_outputs = {value.name for value in graph.outputs if graph.producers.get(value.name) in self.moved}
        self.calibrate({})
        self._raw = [node.SerializeToString(deterministic=True) for node in graph.nodes]
        self._shell, self._tail = _frame(graph)
        self._nodes: dict[tuple[object, ...], bytes] = {}
        self._fusing: dict[int, tuple[str, ...]] = {}
        self.tails = [_tail(graph, node) for node in graph.nodes]

    def root(self, name: str) -> str:
        """The tensor whose scale this one shares."""
        return self.root_of.get(name, name)

    def needed(self) -> list[str]:
        """The tensors whose range has to be known: what int8 ops read or write, before it was moved about."""
        names = []
        for unit in self.units:
            names += [self.root(name) for name in unit.activations]
            if unit.quantized_output:
                names.append(self.root(unit.output))
        return list(dict.fromkeys(names))

    def calibrate(self, ranges: Ranges) -> None:
        """Set the ranges that later assemblies use, and start their parts anew."""
        self.ranges = ranges
        self.params = functools.cache(self._params)
        self.scales = functools.cache(self._scales)
        self.activation = functools.cache(self._activation)
        self.bias = functools.cache(self._bias)

    def assemble(self, config: QuantConfig | None, outputs: tuple[str, ...] = ()) -> Assembly:
        """The model of a configuration; None is all fp32. `outputs` are float tensors to give out besides."""
        return Pass(self, config).run(outputs)

    def _params(self, root: str, scheme: Scheme) -> ActivationParams:
        """Scale and zero point of a tensor and all that share its scale."""
        method, kind = scheme
        try:
            low, high = self.ranges[root][method]
        except KeyError:
            raise BuildError(f"tensor {root!r} has no {method} range: calibrate before building int8 models") from None
        return activation_params(low, high, kind)

    def _scales(self, root: str, scheme: Scheme) -> bytes:
        """The two constants that a tensor and all that share its scale are quantized by."""
        scale, zero = self.params(root, scheme)
        return wire.tensor(self.label(root, "scale"), np.asarray(scale)) + wire.tensor(
            self.label(root, "zero"), np.asarray(zero)
        )

    def _activation(self, name: str, source: str, target: str) -> bytes:
        """The QuantizeLinear and DequantizeLinear pair of a tensor."""
        root, quantized = self.root(name), self.label(name, "q")
        by = [self.label(root, "scale"), self.label(root, "zero")]
        return wire.node("QuantizeLinear", [source, *by], [quantized], self.label(name, "Q")) + wire.node(
            "DequantizeLinear", [quantized, *by], [target], self.label(name, "DQ")
        )

    def _bias(self, anchor: int, scheme: Scheme, per_channel: bool) -> tuple[bytes, tuple[Entry, ...], Float | None]:
        """A unit's int8 bias, and the weight scale it needs when it is not the weight's own."""
        unit = self.unit_of[anchor]
        assert unit.weight is not None and unit.bias is not None
        axis = unit.axis if per_channel else None
        step = self.params(self.root(unit.activations[0]), scheme).scale
        wider = self.store.bias_scale(unit.weight, axis, unit.bias, step)
        scale = self.store.scale(unit.weight, axis) if wider is None else wider
        node, entries = self.store.bias(self.label(unit.op.name, "bias"), unit.bias, step, scale)
        return node, entries, wider

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

    def frame(self) -> tuple[bytes, bytes]:
        """The bytes before the graph, and those of the graph that no configuration changes."""
        return self._shell, self._tail


class Pass:
    """One walk over the nodes, for one configuration."""

    def __init__(self, assembler: Assembler, config: QuantConfig | None) -> None:
        self.a = assembler
        self.chosen: dict[int, OpConfig] = {}
        self.schemes: dict[str, Scheme] = {}  # of each quantized tensor family
        self.written: set[str] = set()  # families whose producer writes uint8
        self.flowing: set[str] = set()  # tensors to be quantized
        self.loose: set[str] = set()  # float results of int8 kernels that need a guard behind them
        self.parts: list[Entry] = []
        self.entries: list[Entry] = []
        self.done: set[str] = set()
        if config is not None:
            self._plan(config)

    def _plan(self, config: QuantConfig) -> None:
        a = self.a
        active = [(unit, config[unit.op.name]) for unit in a.units if config[unit.op.name].precision is INT8]
        self.chosen = {unit.anchor: pick for unit, pick in active}
        # The producer of a tensor decides how it is quantized; if that is fp32, its first int8 reader.
        for unit, pick in active:
            if unit.quantized_output:
                root = a.root(unit.output)
                self.schemes[root] = (pick.calibration, pick.scheme)
                self.written.add(root)
                self.flowing.add(unit.output)
        for unit, pick in active:
            for name in unit.activations:
                self.schemes.setdefault(a.root(name), (pick.calibration, pick.scheme))
                self.flowing.add(name)
        # Between a uint8 producer and a uint8 reader everything that is only moved about stays uint8.
        for index in sorted(a.moved, reverse=True):
            node = a.graph.nodes[index]
            if a.root(node.input[0]) in self.written and any(name in self.flowing for name in node.output):
                self.flowing.add(node.input[0])
                self.flowing.update(name for name in node.output if name)
        self.loose = {end for unit, _ in active if (end := self._loose_end(unit)) is not None}

    def _loose_end(self, unit: Unit) -> str | None:
        """What a kernel that writes float produces, if the optimiser would not find the kernel without a guard there.

        It gives up on a product whose result is read both through a QuantizeLinear and as it is, and on one followed
        by a Relu or Clip that no QuantizeLinear makes redundant.
        """
        a = self.a
        node = a.graph.nodes[unit.anchor]
        if unit.quantized_output or node.op_type not in ("Gemm", "MatMul"):
            return None
        name = node.output[0]
        readers = a.graph.consumers.get(name, [])
        only = a.graph.nodes[readers[0]] if len(readers) == 1 else None
        clip = only if only is not None and only.op_type in ("Relu", "Clip") else None
        if not any(self._reaches_int8(i, name) for i in readers):
            return None if clip is None else name
        if clip is None:
            shared = name in a.pinned or len(readers) > 1
            return name if shared and not self._only_quantized(name) else None
        vanishes = name not in a.pinned and absorbs(a.graph, clip) and self._only_quantized(clip.output[0])
        return None if vanishes else name

    def _only_quantized(self, name: str) -> bool:
        """Whether int8 ops are all that reads a tensor."""
        a = self.a
        readers = a.graph.consumers.get(name, [])
        return name not in a.pinned and all(i in self.chosen and name in a.unit_of[i].activations for i in readers)

    def _reaches_int8(self, index: int, name: str) -> bool:
        """Whether a node that reads `name` is an int8 op, or one that the optimiser looks through on its way there."""
        a, node = self.a, self.a.graph.nodes[index]
        if index in self.chosen and name in a.unit_of[index].activations:
            return True
        if index not in a.moved and node.op_type not in ("Relu", "Clip"):
            return False
        return any(self._reaches_int8(i, output) for output in node.output for i in a.graph.consumers.get(output, []))

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
        return Assembly(shell, tuple(_merged([*self.parts, *self.entries, tail + extra])), self.a.store)

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
            self.parts.append(a.activation(name, source, target))
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


def _tail(graph: Graph, node: NodeProto) -> tuple[str, ...]:
    """What a node produces, also after a Relu or Clip, which vanish where a QuantizeLinear follows."""
    names = [node.output[0]]
    while (reader := graph.only_reader(names[-1])) is not None and reader.op_type in ("Relu", "Clip"):
        names.append(reader.output[0])
    return tuple(names)


def _merged(parts: list[Entry]) -> Iterator[Entry]:
    """Join neighbouring bytes."""
    run: list[bytes] = []
    for part in parts:
        if isinstance(part, StoredTensor):
            if run:
                yield b"".join(run)
                run = []
            yield part
        else:
            run.append(part)
    if run:
        yield b"".join(run)


def _frame(graph: Graph) -> tuple[bytes, bytes]:
    shell = type(graph.shell)()
    shell.CopyFrom(graph.shell)
    tail = shell.graph.SerializeToString(deterministic=True)
    shell.ClearField("graph")
    return shell.SerializeToString(deterministic=True), tail
