"""Which tensors of a configuration are quantized, and how."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from quaver.adapters.onnxrt.ops.units import Unit, quantization_absorbs
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
    hard_sigmoid: str = ""


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

    def __init__(self, builder: Builder, config: QuantConfig | None) -> None:
        self.builder = builder
        self.static_choices: dict[int, OpConfig] = {}
        self.float_io_choices: dict[int, OpConfig] = {}
        self.schemes: dict[str, Scheme] = {}
        self.uint8_outputs: set[str] = set()
        self.quantized_tensors: set[str] = set()
        self.guarded: set[str] = set()
        self.requantized: set[str] = set()
        self.integer_outputs: set[str] = set()
        self.rescaled_inputs: dict[int, str] = {}
        self.rescaled_at_source: dict[str, str] = {}
        self.rescaled_tensors: dict[str, str] = {}
        if config is not None:
            self._plan(config)

    def _plan(self, config: QuantConfig) -> None:
        builder = self.builder
        quantized = [(unit, config[unit.op.name]) for unit in builder.units if config[unit.op.name].quantized]
        active = [(unit, choice) for unit, choice in quantized if choice.calibrated or unit.is_embedding]
        self.static_choices = {unit.anchor: choice for unit, choice in active}
        self.float_io_choices = {
            unit.anchor: choice for unit, choice in quantized if unit.anchor not in self.static_choices
        }
        self._rescale(active)
        # The producer of a tensor decides how it is quantized; if that is fp32, its first int8 reader.
        for unit, choice in active:
            if unit.writes_integers_as(choice) and not unit.is_passthrough and unit.hard_sigmoid is None:
                scheme = (
                    TABLE
                    if unit.is_embedding
                    else self._scheme_of(choice, unit.output, self.rescaled_tensors.get(unit.output))
                )
                self._write(unit, scheme, by_itself=unit.is_embedding)
        for unit, choice in active:
            for name in unit.activations:
                read = self.read_by(unit, name)
                self.schemes.setdefault(builder.root(read), self._scheme(unit, choice, name))
                self.quantized_tensors.add(read)
            if unit.is_passthrough:
                read = builder.root(unit.activations[0])
                scheme = self.schemes[read]
                self._write(unit, scheme._replace(source=scheme.source or read), by_itself=True)
            elif unit.hard_sigmoid is not None:
                self._write_hard_sigmoid(unit, choice)
        # Between a uint8 producer and a uint8 reader everything that is only moved about stays uint8.
        for index in sorted(builder.moved, reverse=True):
            node = builder.graph.nodes[index]
            if builder.root(node.input[0]) in self.uint8_outputs and any(
                name in self.quantized_tensors for name in node.output
            ):
                self.quantized_tensors.add(node.input[0])
                self.quantized_tensors.update(name for name in node.output if name)
        self.guarded = {end for unit, _ in active if (end := self._product_to_guard(unit)) is not None}
        self.guarded |= {end for unit, choice in quantized if (end := self._sum_to_guard(unit, choice)) is not None}
        self.guarded |= {name for name in builder.moved_captures if self._must_stay_float(name)}

    def read_by(self, unit: Unit, name: str) -> str:
        """What a unit reads for an activation: a rescaled tensor has another name where a Mul makes it."""
        repair_name = self.rescaled_inputs.get(unit.anchor)
        if repair_name is None or name in self.rescaled_at_source:
            return name
        return self.builder.label(name, repair_name)

    def _rescale(self, active: Iterable[tuple[Unit, OpConfig]]) -> None:
        """Note which ops want what they read rescaled, and what is divided where it is made.

        That is so if all who read it in less than fp32 want the same, and what makes it can divide. Else those who want
        it read a copy.
        """
        rescaler = self.builder.rescaler
        for unit, choice in active:
            rescaling_repair = rescaler.rescaling_repair(unit, choice.repairs)
            if rescaling_repair is not None:
                self.rescaled_inputs[unit.anchor] = rescaling_repair
        for name, (units, _, divisor) in rescaler.shared.items() if self.rescaled_inputs else ():
            wishes = {self.rescaled_inputs.get(unit.anchor) for unit in units if unit.anchor in self.static_choices}
            rescaling_repair = wishes.pop() if len(wishes) == 1 else None
            if rescaling_repair is None or divisor is None:
                continue
            changed = [*units, *([] if divisor.unit is None else [divisor.unit])]
            if not any(unit.anchor in self.float_io_choices for unit in changed):
                self.rescaled_at_source[name] = rescaling_repair
                self.rescaled_tensors |= dict.fromkeys(divisor.tensors, rescaling_repair)

    def _scheme(self, unit: Unit, choice: OpConfig, name: str) -> Scheme:
        """How an op has a tensor quantized that nobody wrote in integers."""
        return self._scheme_of(choice, name, self.rescaled_tensors.get(name) or self.rescaled_inputs.get(unit.anchor))

    def _scheme_of(self, choice: OpConfig, name: str, repair_name: str | None) -> Scheme:
        return Scheme(choice.calibration, choice.scheme, *(() if repair_name is None else (name, repair_name)))

    def _write(self, unit: Unit, scheme: Scheme, by_itself: bool) -> None:
        root = self.builder.root(unit.output)
        self.schemes[root] = scheme
        self.uint8_outputs.add(root)
        self.quantized_tensors.add(unit.output)
        if by_itself:
            self.integer_outputs.add(unit.output)

    def _write_hard_sigmoid(self, unit: Unit, choice: OpConfig) -> None:
        """What a HardSigmoid reads in integers it cuts off, if the scale is such that this is all; else by a table."""
        read = self.builder.root(unit.activations[0])
        scheme = self.schemes[read]
        clipped_scheme = scheme._replace(source=scheme.source or read, hard_sigmoid=unit.output)
        if (
            read in self.uint8_outputs
            and not scheme.hard_sigmoid
            and self.builder.clipped_scheme(clipped_scheme) is not None
        ):
            self._write(unit, clipped_scheme, by_itself=True)
        else:
            self._write(unit, self._scheme_of(choice, unit.output, None), by_itself=False)
            self.requantized.add(unit.output)

    def _product_to_guard(self, unit: Unit) -> str | None:
        """What a kernel that writes float produces, if the optimiser would not find the kernel without a guard there.

        It gives up on a product whose result is read both through a QuantizeLinear and as it is, and on one followed
        by a Relu or Clip that no QuantizeLinear makes redundant. And it makes one Gemm of a flat product and what is
        added to it, which is then no longer int8.
        """
        builder = self.builder
        node = builder.graph.nodes[unit.anchor]
        if unit.quantized_output or node.op_type not in ("Gemm", "MatMul"):
            return None
        name = node.output[0]
        readers = builder.graph.consumers.get(name, [])
        only = builder.graph.nodes[readers[0]] if len(readers) == 1 else None
        clip = only if only is not None and only.op_type in ("Relu", "Clip") else None
        if not self._reaches_int8(name):
            flat = node.op_type == "MatMul" and builder.graph.ranks.get(node.input[0], 2) == 2
            joined = flat and only is not None and only.op_type == "Add"
            return name if joined or clip is not None else None
        if clip is None:
            shared = name in builder.pinned or len(readers) > 1
            return name if shared and not self._only_quantized(name) else None
        return None if name not in builder.pinned and quantization_absorbs(builder.graph, clip) else name

    def _sum_to_guard(self, unit: Unit, choice: OpConfig) -> str | None:
        """What a product with its weight alone in 8 bits makes, its bias added, if it is clipped or quantized at once.

        The optimiser would make one float kernel of all that.
        """
        graph = self.builder.graph
        node = graph.nodes[unit.anchor]
        if choice.mode != "weight_only" or choice.granularity == PER_BLOCK or node.op_type not in ("Gemm", "MatMul"):
            return None
        name = node.output[0] if node.op_type == "Gemm" else unit.output
        clipped = any(graph.nodes[index].op_type in ("Relu", "Clip") for index in graph.consumers.get(name, ()))
        return name if clipped or self._reaches_int8(name) else None

    def _must_stay_float(self, name: str) -> bool:
        """Return whether a tensor that a body captures needs a guard between it and the uint8 tensor it comes from.

        The optimiser moves DequantizeLinear past MaxPool, Transpose, Reshape and the like. Where a body reads the
        result it aborts the process.
        """
        return name not in self.quantized_tensors and self.builder.root(name) in self.uint8_outputs

    def _only_quantized(self, name: str) -> bool:
        """Whether int8 ops are all that reads a tensor."""
        builder = self.builder
        readers = builder.graph.consumers.get(name, [])
        return name not in builder.pinned and all(self._reads_int8(index, name) for index in readers)

    def _reads_int8(self, index: int, name: str) -> bool:
        """Whether a node is an int8 op that reads this tensor, and not what a Mul makes of it."""
        unit = self.builder.unit_of.get(index)
        if index not in self.static_choices or unit is None or name not in unit.activations:
            return False
        return self.read_by(unit, name) == name

    def _reaches_int8(self, name: str) -> bool:
        """Whether an int8 op reads a tensor, or one behind nodes that the optimiser looks through on its way there."""
        builder, graph = self.builder, self.builder.graph
        waiting, seen = [name], {name}
        while waiting:
            tensor = waiting.pop()
            for index in graph.consumers.get(tensor, ()):
                if self._reads_int8(index, tensor):
                    return True
                if index in builder.moved or graph.nodes[index].op_type in ("Relu", "Clip"):
                    fresh = [output for output in graph.nodes[index].output if output not in seen]
                    waiting += fresh
                    seen.update(fresh)
        return False
