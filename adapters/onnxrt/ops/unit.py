"""The unit: an op that the user can toggle, with the graph nodes it is made of.

Everything here follows the kernels that ONNX Runtime has. `benchmarks/kernels.py` lists what its optimiser makes of
each op type between DequantizeLinear and QuantizeLinear.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

from onnx import NodeProto

from quaver.adapters.onnxrt.load.graph import Graph
from quaver.ops import CALIBRATIONS, FLOAT, GRANULARITIES, INT8, SCHEMES, Op, OpConfig

# What the optimiser turns into int8 by itself between DequantizeLinear and QuantizeLinear, and how many of its inputs
# must be dequantized for that (None: all). `benchmarks/kernels.py` measures it.
FUSED_BY_ORT = {
    "Add": 2, "AveragePool": 1, "Concat": None, "Conv": 1, "ConvTranspose": 1, "Gemm": 1, "GlobalAveragePool": 1,
    "LeakyRelu": 1, "MatMul": 2, "Mul": 2, "Sigmoid": 1, "Softmax": 1, "Where": 3,
}  # fmt: skip
# Float products and convolutions get a guard whatever follows: the optimiser folds much into them before it looks for a
# QuantizeLinear.
FUSED_WITH_WEIGHT = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})


@dataclass(frozen=True, slots=True)
class KernelRules:
    """The int8 fusions that a runtime makes by itself, and how to keep it from making them.

    Attributes:
        fused: by op type, how many of its inputs must be dequantized for an int8 kernel; None is all.
        fused_anywhere: the op types of these that are fused whatever follows; others only before a QuantizeLinear.
        drops_single_max: True if the optimiser removes a Max with one input. Guards then have the lowest float, too.
        guards_products: True if the float output of an int8 product needs a guard before some readers.
        passing: op types of int8 kernels behind which `fused` ops run in int8, although what they read is float.
        guards_shared: True if a float output of an int8 op needs a guard where several nodes read it.
        writes_float: True if an int8 kernel writes float as fast as uint8. Tensors with a float reader then stay float.
    """

    fused: Mapping[str, int | None]
    fused_anywhere: frozenset[str]
    drops_single_max: bool = False
    guards_products: bool = True
    writes_float: bool = False
    passing: frozenset[str] = frozenset()
    guards_shared: bool = False


ORT_RULES = KernelRules(FUSED_BY_ORT, FUSED_WITH_WEIGHT)


@dataclass(frozen=True, slots=True)
class Unit:
    """An op and what an int8 version of it needs.

    Attributes:
        op: what the user sees.
        anchor: index of the node that does the arithmetic.
        nodes: indices of all nodes of the unit, the anchor first.
        activations: tensors the anchor reads that must be quantized.
        weight: the constant it multiplies with, or the embedding table it looks up rows of.
        bias: a constant that the integer kernel adds.
        axis: the weight's output channel axis, or the axis of a table's rows; None if only one scale is possible.
        output: the tensor the unit produces.
        quantized_output: True if the int8 kernel writes uint8. Others write float.
        hard_sigmoid: slope and shift of a HardSigmoid, which is done by how its input is quantized.
        is_passthrough: True if it hands on what it reads, in the scale that it has.
        operand: a constant that is added or multiplied with.
    """

    op: Op
    anchor: int
    nodes: tuple[int, ...]
    activations: tuple[str, ...]
    weight: str | None
    bias: str | None
    axis: int | None
    output: str
    quantized_output: bool
    hard_sigmoid: tuple[float, float] | None = None
    is_passthrough: bool = False
    operand: str | None = None

    @property
    def is_newer_than_0_1_0(self) -> bool:
        """True if version 0.1.0 did not offer it. Histories of that version resume with the ops it offered."""
        return self.is_bridge_only or self.is_embedding or self.is_lstm or self.hard_sigmoid is not None

    @property
    def is_bridge_only(self) -> bool:
        """True if int8 only saves conversions here, as a bridge between ops that compute in int8."""
        return self.is_passthrough or self.operand is not None or self.op.kind in ("ReduceMean", "Where")

    @property
    def is_embedding(self) -> bool:
        """True if it looks up rows of a table, and computes nothing."""
        return not self.activations

    @property
    def is_lstm(self) -> bool:
        """True for an LSTM. Its int8 kernel takes new ranges at each step."""
        return self.op.kind == "LSTM"

    @property
    def has_static_choice(self) -> bool:
        """True if it can run with calibrated ranges."""
        return any(choice.calibrated for choice in self.op.choices)

    def writes_integers_as(self, choice: OpConfig) -> bool:
        """Return True if the output is uint8 with this choice. Rows with a scale each are dequantized at once."""
        return self.quantized_output and not (self.is_embedding and choice.granularity != "per_tensor")


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitParts:
    """The parts of a unit that a rule of `ops/units.py` decides; `make_unit` adds the rest.

    Attributes:
        activations: tensors that must be quantized; by default the first input of the node.
        weight: the constant it multiplies with.
        bias: a constant that the integer kernel adds.
        axis: the weight's output channel axis.
        takes_activation: True if a Relu or Clip behind it becomes part of the unit.
        quantized_output: True if the int8 kernel writes uint8.
        is_int8_by_default: True if int8 comes before fp32 among the choices.
        more_nodes: indices of nodes behind the anchor that belong to the unit.
        output: the tensor the unit produces; by default the first output of the node.
    """

    activations: tuple[str, ...] = ()
    weight: str | None = None
    bias: str | None = None
    axis: int | None = None
    takes_activation: bool = False
    quantized_output: bool = True
    is_int8_by_default: bool = True
    more_nodes: tuple[int, ...] = ()
    output: str = ""


def make_unit(graph: Graph, index: int, parts: UnitParts) -> Unit:
    """Return the unit whose arithmetic is done by the node at `index`."""
    node = graph.nodes[index]
    nodes, output = [index, *parts.more_nodes], parts.output or node.output[0]
    if parts.takes_activation:
        follower = graph.only_reader(output)
        if follower is not None and quantization_absorbs(graph, follower):
            nodes.append(graph.producers[follower.output[0]])
            output = follower.output[0]
    activations = tuple(dict.fromkeys(parts.activations or node.input[:1]))
    names = [graph.nodes[i].name for i in nodes]
    names += [merged for name in names for merged in graph.merged.get(name, ())]
    op = Op(node.name, node.op_type, tuple(dict.fromkeys(names)), _choices(parts))
    return Unit(
        op, index, tuple(nodes), activations, parts.weight, parts.bias or None, parts.axis, output,
        parts.quantized_output,
    )  # fmt: skip


def _choices(parts: UnitParts) -> tuple[OpConfig, ...]:
    has_channels = parts.weight is not None and parts.axis is not None
    granularities = GRANULARITIES if has_channels else ("per_tensor",)
    int8 = [OpConfig(INT8, c, g, s) for s, g, c in product(SCHEMES, granularities, CALIBRATIONS)]
    return (*int8, FLOAT) if parts.is_int8_by_default else (FLOAT, *int8)


def quantization_absorbs(graph: Graph, node: NodeProto) -> bool:
    """Return True for a Relu, or a Clip that starts at zero: quantizing its output to uint8 does the clipping."""
    if node.op_type == "Relu":
        return True
    if node.op_type != "Clip":
        return False
    low = graph.constants.get(node.input[1]) if len(node.input) > 1 and node.input[1] else None
    is_high_constant = len(node.input) < 3 or not node.input[2] or node.input[2] in graph.constants
    return low is not None and low.size == 1 and float(low.reshape(())) == 0.0 and is_high_constant
