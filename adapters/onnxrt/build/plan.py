"""Which tensors of a configuration are quantized, and how."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from quaver.adapters.onnxrt.ops.units import Unit, absorbs
from quaver.ops import PER_BLOCK, OpConfig, QuantConfig

if TYPE_CHECKING:
    from quaver.adapters.onnxrt.build.builder import Builder


class Scheme(NamedTuple):
    """How a tensor is quantized: calibration method, whether the zero point is free, and whose range it is.

    `source` is the tensor that an op handed on with the scale it had; empty for a tensor with a scale of its own.
    `rescaling` is the repair that `source` went through, which has its whole range then. `gate` is the result of a
    HardSigmoid that handed its integers on, which stand for something else behind it.
    """

    method: str
    kind: str
    source: str = ""
    rescaling: str = ""
    gate: str = ""


# That of rows of a table, which brings its range along.
TABLE = Scheme("table", "asym")


class Plan:
    """What one configuration means for the tensors of a graph; None is all fp32.

    Attributes:
        chosen: by the index of its anchor, how each op runs whose tensors are quantized, or whose table is.
        between_floats: the same of the other int8 ops, which read float and write float.
        schemes: of each quantized tensor family.
        written: families whose producer writes uint8.
        flowing: tensors to be quantized.
        loose: float results of int8 kernels that need a guard behind them.
        tables: results of HardSigmoids in int8 that are quantized anew.
        integers: results that a node writes in integers by itself.
        rescaled: by the index of its anchor, the repair that divides what an op reads.
        absorbed: by tensor, the same where what makes it does so.
        divided: all tensors that are divided then, on the way to these too, and by which repair.
    """

    def __init__(self, assembler: Builder, config: QuantConfig | None) -> None:
        self.assembler = assembler
        self.chosen: dict[int, OpConfig] = {}
        self.between_floats: dict[int, OpConfig] = {}
        self.schemes: dict[str, Scheme] = {}
        self.written: set[str] = set()
        self.flowing: set[str] = set()
        self.loose: set[str] = set()
        self.tables: set[str] = set()
        self.integers: set[str] = set()
        self.rescaled: dict[int, str] = {}
        self.absorbed: dict[str, str] = {}
        self.divided: dict[str, str] = {}
        if config is not None:
            self._plan(config)

    def _plan(self, config: QuantConfig) -> None:
        assembler = self.assembler
        quantized = [(unit, config[unit.op.name]) for unit in assembler.units if config[unit.op.name].quantized]
        active = [(unit, pick) for unit, pick in quantized if pick.calibrated or unit.is_embedding]
        self.chosen = {unit.anchor: pick for unit, pick in active}
        self.between_floats = {unit.anchor: pick for unit, pick in quantized if unit.anchor not in self.chosen}
        self._rescale(active)
        # The producer of a tensor decides how it is quantized; if that is fp32, its first int8 reader.
        for unit, pick in active:
            if unit.hands_on_integers(pick) and not unit.is_passthrough and unit.gate is None:
                scheme = (
                    TABLE if unit.is_embedding else self._scheme_of(pick, unit.output, self.divided.get(unit.output))
                )
                self._write(unit, scheme, by_itself=unit.is_embedding)
        for unit, pick in active:
            for name in unit.activations:
                read = self.read_by(unit, name)
                self.schemes.setdefault(assembler.root(read), self._scheme(unit, pick, name))
                self.flowing.add(read)
            if unit.is_passthrough:
                read = assembler.root(unit.activations[0])
                scheme = self.schemes[read]
                self._write(unit, scheme._replace(source=scheme.source or read), by_itself=True)
            elif unit.gate is not None:
                self._write_gate(unit, pick)
        # Between a uint8 producer and a uint8 reader everything that is only moved about stays uint8.
        for index in sorted(assembler.moved, reverse=True):
            node = assembler.graph.nodes[index]
            if assembler.root(node.input[0]) in self.written and any(name in self.flowing for name in node.output):
                self.flowing.add(node.input[0])
                self.flowing.update(name for name in node.output if name)
        self.loose = {end for unit, _ in active if (end := self._loose_end(unit)) is not None}
        self.loose |= {end for unit, pick in quantized if (end := self._sum_to_guard(unit, pick)) is not None}
        self.loose |= {name for name in assembler.moved_captures if self._must_stay_float(name)}

    def read_by(self, unit: Unit, name: str) -> str:
        """What a unit reads for an activation: a rescaled tensor has another name where a Mul makes it."""
        spelled = self.rescaled.get(unit.anchor)
        if spelled is None or name in self.absorbed:
            return name
        return self.assembler.label(name, spelled)

    def _rescale(self, active: Iterable[tuple[Unit, OpConfig]]) -> None:
        """Note which ops want what they read rescaled, and what is divided where it is made.

        That is so if all who read it in less than fp32 want the same, and what makes it can divide. Else those who want
        it read a copy.
        """
        rescaler = self.assembler.rescaler
        for unit, pick in active:
            wish = rescaler.wish(unit, pick.repairs)
            if wish is not None:
                self.rescaled[unit.anchor] = wish
        for name, (units, _, divisor) in rescaler.shared.items() if self.rescaled else ():
            wishes = {self.rescaled.get(unit.anchor) for unit in units if unit.anchor in self.chosen}
            wish = wishes.pop() if len(wishes) == 1 else None
            if wish is None or divisor is None:
                continue
            changed = [*units, *([] if divisor.unit is None else [divisor.unit])]
            if not any(unit.anchor in self.between_floats for unit in changed):
                self.absorbed[name] = wish
                self.divided |= dict.fromkeys(divisor.tensors, wish)

    def _scheme(self, unit: Unit, pick: OpConfig, name: str) -> Scheme:
        """How an op has a tensor quantized that nobody wrote in integers."""
        return self._scheme_of(pick, name, self.divided.get(name) or self.rescaled.get(unit.anchor))

    def _scheme_of(self, pick: OpConfig, name: str, spelled: str | None) -> Scheme:
        return Scheme(pick.calibration, pick.scheme, *(() if spelled is None else (name, spelled)))

    def _write(self, unit: Unit, scheme: Scheme, by_itself: bool) -> None:
        root = self.assembler.root(unit.output)
        self.schemes[root] = scheme
        self.written.add(root)
        self.flowing.add(unit.output)
        if by_itself:
            self.integers.add(unit.output)

    def _write_gate(self, unit: Unit, pick: OpConfig) -> None:
        """What a HardSigmoid reads in integers it cuts off, if the scale is such that this is all; else by a table."""
        read = self.assembler.root(unit.activations[0])
        scheme = self.schemes[read]
        gated = scheme._replace(source=scheme.source or read, gate=unit.output)
        if read in self.written and not scheme.gate and self.assembler.gated(gated) is not None:
            self._write(unit, gated, by_itself=True)
        else:
            self._write(unit, self._scheme_of(pick, unit.output, None), by_itself=False)
            self.tables.add(unit.output)

    def _loose_end(self, unit: Unit) -> str | None:
        """What a kernel that writes float produces, if the optimiser would not find the kernel without a guard there.

        It gives up on a product whose result is read both through a QuantizeLinear and as it is, and on one followed
        by a Relu or Clip that no QuantizeLinear makes redundant. And it makes one Gemm of a flat product and what is
        added to it, which is then no longer int8.
        """
        assembler = self.assembler
        node = assembler.graph.nodes[unit.anchor]
        if unit.quantized_output or node.op_type not in ("Gemm", "MatMul"):
            return None
        name = node.output[0]
        readers = assembler.graph.consumers.get(name, [])
        only = assembler.graph.nodes[readers[0]] if len(readers) == 1 else None
        clip = only if only is not None and only.op_type in ("Relu", "Clip") else None
        if not self._reaches_int8(name):
            flat = node.op_type == "MatMul" and assembler.graph.ranks.get(node.input[0], 2) == 2
            joined = flat and only is not None and only.op_type == "Add"
            return name if joined or clip is not None else None
        if clip is None:
            shared = name in assembler.pinned or len(readers) > 1
            return name if shared and not self._only_quantized(name) else None
        return None if name not in assembler.pinned and absorbs(assembler.graph, clip) else name

    def _sum_to_guard(self, unit: Unit, pick: OpConfig) -> str | None:
        """What a product with its weight alone in 8 bits makes, its bias added, if it is clipped or quantized at once.

        The optimiser would make one float kernel of all that.
        """
        graph = self.assembler.graph
        node = graph.nodes[unit.anchor]
        if pick.mode != "weight_only" or pick.granularity == PER_BLOCK or node.op_type not in ("Gemm", "MatMul"):
            return None
        name = node.output[0] if node.op_type == "Gemm" else unit.output
        clipped = any(graph.nodes[index].op_type in ("Relu", "Clip") for index in graph.consumers.get(name, ()))
        return name if clipped or self._reaches_int8(name) else None

    def _must_stay_float(self, name: str) -> bool:
        """Return whether a tensor that a body captures needs a guard between it and the uint8 tensor it comes from.

        The optimiser moves DequantizeLinear past MaxPool, Transpose, Reshape and the like. Where a body reads the
        result it aborts the process.
        """
        return name not in self.flowing and self.assembler.root(name) in self.written

    def _only_quantized(self, name: str) -> bool:
        """Whether int8 ops are all that reads a tensor."""
        assembler = self.assembler
        readers = assembler.graph.consumers.get(name, [])
        return name not in assembler.pinned and all(self._reads_int8(index, name) for index in readers)

    def _reads_int8(self, index: int, name: str) -> bool:
        """Whether a node is an int8 op that reads this tensor, and not what a Mul makes of it."""
        unit = self.assembler.unit_of.get(index)
        if index not in self.chosen or unit is None or name not in unit.activations:
            return False
        return self.read_by(unit, name) == name

    def _reaches_int8(self, name: str) -> bool:
        """Whether an int8 op reads a tensor, or one behind nodes that the optimiser looks through on its way there."""
        assembler, graph = self.assembler, self.assembler.graph
        waiting, seen = [name], {name}
        while waiting:
            tensor = waiting.pop()
            for index in graph.consumers.get(tensor, ()):
                if self._reads_int8(index, tensor):
                    return True
                if index in assembler.moved or graph.nodes[index].op_type in ("Relu", "Clip"):
                    fresh = [output for output in graph.nodes[index].output if output not in seen]
                    waiting += fresh
                    seen.update(fresh)
        return False
