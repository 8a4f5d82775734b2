"""The plan of one model: which tensors of the graph a configuration quantizes, and how.

`Plan` turns a `QuantConfig`, which speaks of ops, into decisions about tensors: which ones are quantized, with what
scale, which ones their producer writes as uint8, and where a guard must keep ONNX Runtime's optimiser from undoing a
choice. The emitter (`build/emitter.py`) only writes down what is planned here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from onnx import NodeProto

from quaver.adapters.onnxrt.build.float_outputs import feeds_int8_alone, is_shared_float, may_be_integers
from quaver.adapters.onnxrt.build.provenance import bf16_properties
from quaver.adapters.onnxrt.ops.unit import Unit, quantization_absorbs
from quaver.ops import BFLOAT, FLOAT, OpConfig, QuantConfig

if TYPE_CHECKING:
    from quaver.adapters.onnxrt.build.builder import Builder

# Units with the choice that a configuration makes for them.
ChosenUnits = list[tuple[Unit, OpConfig]]


class Scheme(NamedTuple):
    """How a tensor is quantized.

    Attributes:
        method: the calibration method of its range.
        kind: "sym" or "asym"; an asymmetric scheme has a free zero point.
        source: the tensor whose range is used; empty for a tensor with a scale of its own.
        rescaling: the repair that divides the channels of `source`, which then has its whole range.
        hard_sigmoid: the output of a HardSigmoid that only clips integers, which stand for other values behind it.
    """

    method: str
    kind: str
    source: str = ""
    rescaling: str = ""
    hard_sigmoid: str = ""


# The scheme of rows of an embedding table, which brings its range along.
TABLE = Scheme("table", "asym")


class Plan:
    """Decisions about the tensors of a graph in one configuration; None is all fp32.

    Attributes:
        static_choices: by anchor index, the choice of each op with quantized inputs, or with an int8 table.
        float_io_choices: by anchor index, the choice of each other int8 op: it reads float and writes float.
        schemes: by root tensor, the scheme of each quantized tensor.
        uint8_outputs: root tensors whose producer writes uint8.
        quantized_tensors: tensors to be quantized.
        guarded: float outputs of int8 kernels that need a guard behind them.
        requantized: outputs of HardSigmoids that a lookup table computes.
        integer_outputs: outputs that a node writes as integers by itself, without a QuantizeLinear.
        rescaled_inputs: by anchor index, the repair that divides the channels of what an op reads.
        rescaled_at_source: by tensor, the same repair where the producer of the tensor divides it.
        rescaled_tensors: all tensors that are divided then, those on the way included, and the repair.
        properties: serialized properties of the model that say in which precision its float part runs.
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
        self.properties = b""
        if config is not None:
            self._plan(config)

    def _plan(self, config: QuantConfig) -> None:
        choices = [(unit, config[unit.op.name]) for unit in self.builder.units]
        quantized = [(unit, choice) for unit, choice in choices if choice.quantized]
        static = [(unit, choice) for unit, choice in quantized if choice.calibrated or unit.is_embedding]
        self.static_choices = {unit.anchor: choice for unit, choice in static}
        self.float_io_choices = {u.anchor: choice for u, choice in quantized if u.anchor not in self.static_choices}
        self._plan_rescaling(static)
        self._plan_outputs(static)
        self._plan_inputs(static)
        self._plan_moved_tensors()
        self._plan_guards(static, quantized)
        self._plan_float_precision(config)

    def _plan_float_precision(self, config: QuantConfig) -> None:
        """Name the nodes that stay fp32, if others run in bf16."""
        if config.bf16_ops:
            units = [unit for unit in self.builder.units if BFLOAT in unit.op.choices and config[unit.op.name] == FLOAT]
            self.properties = bf16_properties([name for unit in units for name in self._names(unit)])

    def _names(self, unit: Unit) -> Iterator[str]:
        """Yield the names of an op's nodes. Runtimes call a node that writes an output of the model by that output."""
        graph = self.builder.graph
        outputs = {value.name for value in graph.outputs}
        for index in unit.nodes:
            yield graph.nodes[index].name
            yield from outputs.intersection(graph.nodes[index].output)

    def read_by(self, unit: Unit, name: str) -> str:
        """Return the tensor that a unit reads for an activation: a rescaled copy has a name of its own."""
        repair_name = self.rescaled_inputs.get(unit.anchor)
        if repair_name is None or name in self.rescaled_at_source:
            return name
        return self.builder.label(name, repair_name)

    def is_uint8(self, name: str) -> bool:
        """Return True if readers get a tensor as uint8, because its producer writes uint8."""
        return name in self.quantized_tensors and self.builder.root(name) in self.uint8_outputs

    def output_rescaling(self, unit: Unit) -> str:
        """Return the repair that divides the output of an op with a weight; empty if none does."""
        return self.rescaled_tensors.get(unit.output, "") if unit.weight is not None else ""

    def is_repinned(self, name: str) -> bool:
        """Return True for a uint8 tensor whose name others rely on.

        Its dequantized form takes the name, behind a guard if a body reads it.
        """
        return name in self.builder.pinned and self.is_uint8(name)

    def raw_name(self, name: str) -> str:
        """Return the name under which a node writes a tensor: another one if a guard or a dequantized form takes its
        name.
        """
        return self.builder.label(name, "float") if name in self.guarded or self.is_repinned(name) else name

    def fusing_slots(self, index: int, node: NodeProto) -> list[int]:
        """Return the inputs of a float node that need a guard. Bodies of local functions are fused like any node."""
        builder = self.builder
        if (node.domain, node.op_type) in builder.functions:
            return [slot for slot, name in enumerate(node.input) if builder.root(name) in self.uint8_outputs]
        names = builder.fusing_inputs(index)
        if names and builder.rules.passing:
            return [slot for slot, name in enumerate(node.input) if name in names and may_be_integers(self, name)]
        if not names or any(builder.root(name) not in self.uint8_outputs for name in names):
            return []
        if node.op_type not in builder.rules.fused_anywhere and not any(
            builder.root(name) in self.schemes for name in builder.outputs_through_clips(index)
        ):
            return []
        return [list(node.input).index(names[0])]

    def is_exposed(self, name: str) -> bool:
        """Return True for a float output of the model that was only moved and that an int8 op reads.

        The optimiser would quantize it before the move, and with it the output of the model.
        """
        root = self.builder.root(name)
        return name in self.builder.moved_outputs and root in self.schemes and root not in self.uint8_outputs

    def _plan_rescaling(self, static: ChosenUnits) -> None:
        """Decide which inputs are rescaled, and which of these tensors their producer divides.

        The producer divides a tensor if it can, and if all quantized readers want the same repair. Otherwise the ops
        that want it read a rescaled copy.
        """
        rescaler = self.builder.rescaler
        for unit, choice in static:
            if choice.block_size:
                continue
            repair_name = rescaler.rescaling_repair(unit, choice.repairs)
            if repair_name is not None:
                self.rescaled_inputs[unit.anchor] = repair_name
        for name, (units, _, absorber) in rescaler.rescalable.items() if self.rescaled_inputs else ():
            wanted = {self.rescaled_inputs.get(unit.anchor) for unit in units if unit.anchor in self.static_choices}
            repair_name = wanted.pop() if len(wanted) == 1 else None
            if repair_name is None or absorber is None:
                continue
            changed = [*units, *([] if absorber.unit is None else [absorber.unit])]
            if not any(unit.anchor in self.float_io_choices for unit in changed):
                self.rescaled_at_source[name] = repair_name
                self.rescaled_tensors |= dict.fromkeys(absorber.tensors, repair_name)

    def _plan_outputs(self, static: ChosenUnits) -> None:
        """Let each producer decide how its output is quantized."""
        for unit, choice in static:
            if not unit.writes_integers_as(choice) or unit.is_passthrough or unit.hard_sigmoid is not None:
                continue
            if unit.is_embedding:
                self._write_uint8(unit, TABLE, by_itself=True)
            elif not self.builder.rules.writes_float or feeds_int8_alone(self, unit.output):
                scheme = self._scheme(choice, unit.output, self.rescaled_tensors.get(unit.output))
                self._write_uint8(unit, scheme, by_itself=False)

    def _plan_inputs(self, static: ChosenUnits) -> None:
        """Quantize what int8 ops read: the first reader decides for a tensor that an fp32 op writes.

        Passthrough ops and HardSigmoids follow in graph order, because their output has the scale of their input.
        """
        for unit, choice in static:
            for name in unit.activations:
                read = self.read_by(unit, name)
                rescaling = self.rescaled_tensors.get(name) or self.rescaled_inputs.get(unit.anchor)
                self.schemes.setdefault(self.builder.root(read), self._scheme(choice, name, rescaling))
                self.quantized_tensors.add(read)
            if unit.is_passthrough:
                read = self.builder.root(unit.activations[0])
                scheme = self.schemes[read]
                self._write_uint8(unit, scheme._replace(source=scheme.source or read), by_itself=True)
            elif unit.hard_sigmoid is not None:
                self._plan_hard_sigmoid(unit, choice)

    def _plan_hard_sigmoid(self, unit: Unit, choice: OpConfig) -> None:
        """Let a HardSigmoid clip the integers it reads if their scale allows that; else use a lookup table."""
        read = self.builder.root(unit.activations[0])
        scheme = self.schemes[read]
        clipped = scheme._replace(source=scheme.source or read, hard_sigmoid=unit.output)
        can_clip = read in self.uint8_outputs and not scheme.hard_sigmoid
        if can_clip and self.builder.clipped(clipped) is not None:
            self._write_uint8(unit, clipped, by_itself=True)
        else:
            self._write_uint8(unit, self._scheme(choice, unit.output, None), by_itself=False)
            self.requantized.add(unit.output)

    def _plan_moved_tensors(self) -> None:
        """Keep what is only moved between a uint8 producer and a uint8 reader in uint8."""
        builder = self.builder
        for index in sorted(builder.moved, reverse=True):
            node = builder.graph.nodes[index]
            is_read_as_uint8 = any(name in self.quantized_tensors for name in node.output)
            if builder.root(node.input[0]) in self.uint8_outputs and is_read_as_uint8:
                self.quantized_tensors.add(node.input[0])
                self.quantized_tensors.update(name for name in node.output if name)

    def _plan_guards(self, static: ChosenUnits, quantized: ChosenUnits) -> None:
        products = (self._int8_product_to_guard(unit) for unit, _ in static)
        sums = (self._weight_only_product_to_guard(unit, choice) for unit, choice in quantized)
        self.guarded = {name for name in (*products, *sums) if name is not None}
        self.guarded |= {name for name in self.builder.moved_captures if self._must_stay_float(name)}
        if self.builder.rules.guards_shared:
            self.guarded |= {unit.output for unit, _ in static if is_shared_float(self, unit)}

    def _scheme(self, choice: OpConfig, name: str, rescaling: str | None) -> Scheme:
        return Scheme(choice.calibration, choice.scheme, *(() if rescaling is None else (name, rescaling)))

    def _write_uint8(self, unit: Unit, scheme: Scheme, by_itself: bool) -> None:
        root = self.builder.root(unit.output)
        self.schemes[root] = scheme
        self.uint8_outputs.add(root)
        self.quantized_tensors.add(unit.output)
        if by_itself:
            self.integer_outputs.add(unit.output)

    def _int8_product_to_guard(self, unit: Unit) -> str | None:
        """Return the float output of an int8 product that needs a guard, or None.

        Without a guard the optimiser misses the int8 kernel in three cases: the result is read both through a
        QuantizeLinear and as it is; a Relu or Clip follows that no QuantizeLinear makes redundant; or it fuses a flat
        product with the Add behind it into one float Gemm.
        """
        graph, pinned = self.builder.graph, self.builder.pinned
        node = graph.nodes[unit.anchor]
        if unit.quantized_output or node.op_type not in ("Gemm", "MatMul") or not self.builder.rules.guards_products:
            return None
        name = node.output[0]
        readers = graph.consumers.get(name, [])
        reader = graph.nodes[readers[0]] if len(readers) == 1 else None
        clip = reader if reader is not None and reader.op_type in ("Relu", "Clip") else None
        if not self._reaches_int8(name):
            is_flat = node.op_type == "MatMul" and graph.ranks.get(node.input[0], 2) == 2
            is_fused = is_flat and reader is not None and reader.op_type == "Add"
            return name if is_fused or clip is not None else None
        if clip is None:
            is_shared = name in pinned or len(readers) > 1
            return name if is_shared and not self._only_quantized(name) else None
        return None if name not in pinned and quantization_absorbs(graph, clip) else name

    def _weight_only_product_to_guard(self, unit: Unit, choice: OpConfig) -> str | None:
        """Return the sum of a product with an int8 weight and its bias, if it is clipped or quantized right after.

        The optimiser would fuse all of that into one float kernel.
        """
        graph = self.builder.graph
        node = graph.nodes[unit.anchor]
        is_product = node.op_type in ("Gemm", "MatMul")
        if choice.mode != "weight_only" or choice.block_size or not is_product:
            return None
        if not self.builder.rules.guards_products:
            return None
        name = node.output[0] if node.op_type == "Gemm" else unit.output
        is_clipped = any(graph.nodes[index].op_type in ("Relu", "Clip") for index in graph.consumers.get(name, ()))
        return name if is_clipped or self._reaches_int8(name) else None

    def _must_stay_float(self, name: str) -> bool:
        """Return True if a tensor that a body captures needs a guard between it and its uint8 source.

        The optimiser moves DequantizeLinear past MaxPool, Transpose, Reshape and the like. Where a body reads the
        result it aborts the process.
        """
        return name not in self.quantized_tensors and self.builder.root(name) in self.uint8_outputs

    def _only_quantized(self, name: str) -> bool:
        """Return True if int8 ops are the only readers of a tensor."""
        readers: Iterable[int] = self.builder.graph.consumers.get(name, [])
        return name not in self.builder.pinned and all(self._reads_int8(index, name) for index in readers)

    def _reads_int8(self, index: int, name: str) -> bool:
        """Return True if a node is an int8 op that reads this tensor itself, not a rescaled copy of it."""
        unit = self.builder.unit_of.get(index)
        if index not in self.static_choices or unit is None or name not in unit.activations:
            return False
        return self.read_by(unit, name) == name

    def _reaches_int8(self, name: str) -> bool:
        """Return True if an int8 op reads a tensor, directly or behind nodes that the optimiser looks through."""
        builder, graph = self.builder, self.builder.graph
        waiting, visited = [name], {name}
        while waiting:
            tensor = waiting.pop()
            for index in graph.consumers.get(tensor, ()):
                if self._reads_int8(index, tensor):
                    return True
                if index in builder.moved or graph.nodes[index].op_type in ("Relu", "Clip"):
                    fresh = [output for output in graph.nodes[index].output if output not in visited]
                    waiting += fresh
                    visited.update(fresh)
        return False
