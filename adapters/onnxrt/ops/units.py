"""Which nodes make up an op that a user can toggle, and what an int8 version of it needs.

Everything here follows the kernels that ONNX Runtime has. `benchmarks/kernels.py` lists what it makes of each op
type between DequantizeLinear and QuantizeLinear.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from onnx import NodeProto, TensorProto

from quaver.adapters.onnxrt.load.graph import Graph, integer, real
from quaver.adapters.onnxrt.ops.exclusions import mask_value_tensors, mixes_probabilities, probabilities
from quaver.adapters.onnxrt.ops.int4 import offer_int4
from quaver.adapters.onnxrt.ops.operands import ELEMENTWISE, operand_of
from quaver.adapters.onnxrt.ops.passthrough import (
    has_int8_average,
    is_global_average_pool,
    is_movement,
    passed_through,
    scale_roots,
)
from quaver.ops import CALIBRATIONS, FLOAT, GRANULARITIES, INT8, SCHEMES, Op, OpConfig
from quaver.types import Array

# Ops on activations alone. Each has a kernel that reads and writes uint8.
_UNARY = {"AveragePool", "GlobalAveragePool", "LeakyRelu", "Sigmoid"}

# A table of fewer numbers saves nothing worth a decision in 8 bits. One of shorter rows has one scale for all of it:
# one for each row would take up as much as the row.
_TABLE_ELEMENTS = 2**14
_ROW_ELEMENTS = 8

# How a product with a constant matrix can run besides: with ranges taken as it runs, or its weight alone in 8 bits.
_OF_PRODUCTS = (
    *(OpConfig(INT8, mode="dynamic", granularity=granularity) for granularity in GRANULARITIES),
    OpConfig(INT8, mode="weight_only"),
)

# What the optimiser turns into int8 by itself when it stands between DequantizeLinear and QuantizeLinear,
# whatever we want; and how many of its inputs must be dequantized for that.
FUSED_BY_ORT = {
    "Add": 2, "AveragePool": 1, "Concat": None, "Conv": 1, "ConvTranspose": 1, "Gemm": 1, "GlobalAveragePool": 1,
    "LeakyRelu": 1, "MatMul": 2, "Mul": 2, "Sigmoid": 1, "Softmax": 1, "Where": 3,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Unit:
    """An op as the adapter sees it.

    Attributes:
        op: what the user sees.
        anchor: index of the node that does the arithmetic.
        nodes: indices of all nodes of the unit, the anchor first.
        activations: tensors the anchor reads that must be quantized.
        weight: the constant it multiplies with, if any, or the table it looks rows up in.
        bias: a constant added inside the integer kernel, if any.
        axis: the weight's output channel axis, or that of a table's rows; None where only one scale is possible.
        output: the tensor the unit produces.
        quantized_output: whether the int8 kernel writes uint8. Others write float.
        gate: slope and shift of a HardSigmoid, which is all in how its input is quantized.
        carries: whether it hands on what it reads, in the scale that it has.
        operand: a constant that is added or multiplied with, if any.
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
        """Whether it came after version 0.1.0, whose histories go on with the ops that it knew."""
        return self.is_bridge_only or self.is_embedding or self.is_lstm or self.hard_sigmoid is not None

    @property
    def is_bridge_only(self) -> bool:
        """Whether 8 bits are for it only a way to save conversions between ops that compute in them."""
        return self.is_passthrough or self.operand is not None or self.op.kind in ("ReduceMean", "Where")

    @property
    def is_embedding(self) -> bool:
        """Whether it looks rows up in a table, and computes nothing."""
        return not self.activations

    @property
    def is_lstm(self) -> bool:
        """Whether it runs over a sequence; the kernel of 8 bits takes its ranges anew at each step."""
        return self.op.kind == "LSTM"

    @property
    def has_static_choice(self) -> bool:
        """Whether it can run with ranges that were found beforehand."""
        return any(choice.calibrated for choice in self.op.choices)

    def writes_integers_as(self, choice: OpConfig) -> bool:
        """Whether what it writes is in 8 bits when it runs so. Rows with scales of their own are not."""
        return self.quantized_output and not (self.is_embedding and choice.granularity != "per_tensor")


def find_units(graph: Graph, ops_version: int = 2) -> list[Unit]:
    """Return the ops of a graph that can run in int8, in graph order; version 1 finds only the ops of quaver 0.1.0."""
    units = []
    absorbed: set[int] = set()
    roots = scale_roots(graph)
    written: set[str] = set()
    infinite, shares = mask_value_tensors(graph) if ops_version > 1 else set(), probabilities(graph)
    for index, node in enumerate(graph.nodes):
        if index in absorbed or node.domain not in ("", "ai.onnx"):
            continue
        unit = _unit(graph, index, node)
        if unit is None or (unit.is_newer_than_0_1_0 and ops_version == 1):
            continue
        if infinite.intersection(unit.activations) or (unit.quantized_output and unit.output in infinite):
            continue
        if unit.is_bridge_only and not all(roots.get(name, name) in written for name in unit.activations):
            continue
        if mixes_probabilities(node, shares):
            unit = replace(unit, op=replace(unit.op, choices=(FLOAT, *unit.op.quantized_choices)))
        units.append(unit)
        absorbed.update(unit.nodes)
        if unit.quantized_output:
            written.add(unit.output)
    return _without_loose_ends(units, roots)


def _without_loose_ends(units: list[Unit], roots: dict[str, str]) -> list[Unit]:
    """The units, less those that hand integers on to nobody who wants them."""
    kept: list[Unit] = []
    wanted: set[str] = set()
    for unit in reversed(units):
        if not unit.is_bridge_only or unit.output in wanted:
            kept.append(unit)
            wanted.update(roots.get(name, name) for name in unit.activations)
    return kept[::-1]


def quantization_absorbs(graph: Graph, node: NodeProto) -> bool:
    """Relu, or a Clip that starts at zero: quantizing its output to uint8 does the clipping."""
    if node.op_type == "Relu":
        return True
    if node.op_type != "Clip":
        return False
    low = graph.constants.get(node.input[1]) if len(node.input) > 1 and node.input[1] else None
    upper_known = len(node.input) < 3 or not node.input[2] or node.input[2] in graph.constants
    return low is not None and low.size == 1 and float(low.reshape(())) == 0.0 and upper_known


def _unit(graph: Graph, index: int, node: NodeProto) -> Unit | None:
    if not node.input or not node.output or not _is_float(graph, node.output[0]):
        return None
    if not _is_float(graph, node.input[0]) and node.op_type != "Where":
        return None
    if node.op_type in ("Conv", "ConvTranspose"):
        return _convolution(graph, index, node)
    if node.op_type == "Gemm":
        return _gemm(graph, index, node)
    if node.op_type == "MatMul":
        return _matmul(graph, index, node)
    if node.op_type == "LSTM":
        return _lstm(graph, index, node)
    if node.op_type in ELEMENTWISE or node.op_type == "Concat":
        return _joining(graph, index, node)
    if node.op_type in _UNARY and node.input[0] not in graph.constants:
        if node.op_type == "AveragePool" and not has_int8_average(node):
            return None
        return _make(graph, index, node, activations=node.input[:1])
    if node.op_type == "HardSigmoid" and node.input[0] not in graph.constants:
        return _hard_sigmoid(graph, index, node)
    if node.op_type == "Gather":
        return _lookup(graph, index, node)
    if node.op_type == "Where":
        return _selection(graph, index, node)
    if node.op_type == "ReduceMean":
        return _make(graph, index, node) if is_global_average_pool(graph, node) else None
    source = passed_through(graph, node)
    if source is not None and _is_float(graph, source):
        return replace(_make(graph, index, node, activations=[source]), is_passthrough=True)
    return None


def _selection(graph: Graph, index: int, node: NodeProto) -> Unit | None:
    """Where of two activations; not just before a Softmax, for what is put there are sentinels."""
    chosen = node.input[1:]
    if any(name in graph.constants or not _is_float(graph, name) for name in chosen):
        return None
    if any(reader.op_type == "Softmax" for reader in _readers(graph, node.output[0])):
        return None
    return _make(graph, index, node, activations=chosen)


def _lookup(graph: Graph, index: int, node: NodeProto) -> Unit | None:
    """Rows of a table, an embedding for example, which is stored in 8 bits. Nothing is computed, nothing calibrated."""
    name, where = node.input
    if not _is_weight(graph, name) or where in graph.constants or graph.constants[name].size < _TABLE_ELEMENTS:
        return None
    table = graph.constants[name]
    axis = integer(node, "axis", 0) % table.ndim
    rows = axis if table.size >= _ROW_ELEMENTS * table.shape[axis] else None
    unit = _make(graph, index, node, weight=name, axis=rows)
    granularities = ("per_tensor",) if rows is None else GRANULARITIES
    choices = [OpConfig(INT8, granularity=granularity, mode="weight_only") for granularity in granularities]
    op = offer_int4(graph, replace(unit.op, choices=(*choices, FLOAT)), node, name)
    return replace(unit, op=op, activations=())


def _hard_sigmoid(graph: Graph, index: int, node: NodeProto) -> Unit | None:
    """clip(alpha x + beta, 0, 1), which takes no arithmetic on integers; see `build/gates.py`."""
    slope, shift = real(node, "alpha", 0.2), real(node, "beta", 0.5)
    if slope <= 0 or not 0 <= shift <= 1:
        return None
    unit = _make(graph, index, node, activations=node.input[:1])
    return replace(unit, hard_sigmoid=(slope, shift))


def _convolution(graph: Graph, index: int, node: NodeProto) -> Unit | None:
    bias = node.input[2] if len(node.input) > 2 else ""
    if node.input[0] in graph.constants or not _is_weight(graph, node.input[1]):
        return None
    if bias and bias not in graph.constants:
        return None
    # What has its weight alone in 8 bits gets smaller, and slower: on offer behind fp32.
    if node.op_type == "Conv":
        unit = _make(graph, index, node, weight=node.input[1], bias=bias, axis=0, activation=True)
        return _offering(graph, unit, OpConfig(INT8, mode="weight_only"), last=True)
    # No int8 kernel exists: fp32 is its default.
    unit = _make(graph, index, node, weight=node.input[1], axis=None, quantized_output=False, pays=False)
    return _offering(graph, unit, OpConfig(INT8, granularity="per_tensor", mode="weight_only"), last=True)


def _gemm(graph: Graph, index: int, node: NodeProto) -> Unit | None:
    weight, bias = node.input[1], node.input[2] if len(node.input) > 2 else ""
    plain = real(node, "alpha", 1.0) == 1.0 and real(node, "beta", 1.0) == 1.0 and not integer(node, "transA", 0)
    if (
        not plain
        or node.input[0] in graph.constants
        or not _is_weight(graph, weight)
        or graph.constants[weight].ndim != 2
    ):
        return None
    axis = 0 if integer(node, "transB", 0) else 1
    if bias and (bias not in graph.constants or graph.constants[bias].shape != (graph.constants[weight].shape[axis],)):
        return None
    unit = _make(graph, index, node, weight=weight, bias=bias, axis=axis, quantized_output=False, activation=True)
    return _offering(graph, unit, *_OF_PRODUCTS)


def _matmul(graph: Graph, index: int, node: NodeProto) -> Unit | None:
    left, right = node.input
    if left in graph.constants:
        return None
    if right not in graph.constants:
        if not _is_float(graph, right):
            return None
        return _make(graph, index, node, activations=node.input, quantized_output=False)
    if not _is_weight(graph, right):
        return None
    axis = 1 if graph.constants[right].ndim == 2 else None
    nodes, output = [index], node.output[0]
    addition = graph.only_reader(output)
    if addition is not None and addition.op_type == "Add" and _is_bias(graph, addition, output, graph.constants[right]):
        nodes.append(graph.producers[addition.output[0]])
        output = addition.output[0]
    unit = _make(graph, index, node, weight=right, axis=axis, quantized_output=False, nodes=nodes, output=output)
    return unit if axis is None else _offering(graph, unit, *_OF_PRODUCTS)


def _lstm(graph: Graph, index: int, node: NodeProto) -> Unit | None:
    """An LSTM with constant weights whose sequence is the first axis, the only form that the kernel of 8 bits takes."""
    if node.input[0] in graph.constants or integer(node, "layout", 0):
        return None
    if not all(_is_weight(graph, name) for name in node.input[1:3]):
        return None
    output = next(name for name in node.output if name)
    unit = _make(graph, index, node, quantized_output=False, output=output)
    choices = [OpConfig(INT8, mode="dynamic", granularity=granularity) for granularity in GRANULARITIES]
    return replace(unit, op=replace(unit.op, choices=(*choices, FLOAT)))


def _offering(graph: Graph, unit: Unit, *more: OpConfig, last: bool = False) -> Unit:
    """A unit with more choices, before fp32 where they can be faster than that, else behind it.

    A weight that others read too is not fused with what dequantizes it, and would be dequantized at each run.
    """
    known = unit.op.choices
    if unit.weight in graph.captured or len(graph.consumers.get(unit.weight or "", ())) > 1:
        more = tuple(choice for choice in more if choice.mode != "weight_only")
    at = len(known) if last else known.index(FLOAT)
    op = replace(unit.op, choices=(*known[:at], *more, *known[at:]))
    node = graph.nodes[unit.anchor]
    if node.op_type in ("Gemm", "MatMul") and unit.weight is not None:
        op = offer_int4(graph, op, node, unit.weight)
    return replace(unit, op=op)


def _is_bias(graph: Graph, addition: NodeProto, output: str, weight: Array) -> bool:
    other = next((name for name in addition.input if name != output), "")
    return other in graph.constants and graph.constants[other].shape == (weight.shape[-1],)


def _joining(graph: Graph, index: int, node: NodeProto) -> Unit | None:
    """Add, Mul and Concat of activations. What is added just before a Softmax stays float: it may be a mask that the
    caller gives, with sentinels of -1e4 to -3e38, which leave no level for the scores.
    """
    if len(node.input) < 2 or not all(_is_float(graph, name) for name in node.input):
        return None
    activations = [name for name in node.input if name not in graph.constants]
    operand = operand_of(graph, node, activations)
    if len(activations) < len(node.input) and operand is None:
        return None
    if node.op_type in ELEMENTWISE and any(reader.op_type == "Softmax" for reader in _readers(graph, node.output[0])):
        return None
    if node.op_type == "Mul" and any(_is_gelu_factor(graph, name) for name in node.input):
        return None
    unit = _make(graph, index, node, activations=activations, activation=node.op_type == "Add")
    return replace(unit, operand=operand)


def _is_gelu_factor(graph: Graph, name: str) -> bool:
    """Whether a tensor is 1 + erf(...) or 1 + tanh(...): the Mul with it ends a GELU, which is one float kernel."""
    makers = [graph.nodes[graph.producers[name]]] if name in graph.producers else []
    if not makers or makers[0].op_type != "Add":
        return False
    inner = [graph.nodes[graph.producers[source]].op_type for source in makers[0].input if source in graph.producers]
    return inner in (["Erf"], ["Tanh"])


def _readers(graph: Graph, name: str) -> Iterator[NodeProto]:
    """Who reads a tensor, directly or after it was moved about or masked."""
    for index in graph.consumers.get(name, []):
        node = graph.nodes[index]
        yield node
        if is_movement(graph, node) or node.op_type in ("Add", "Where"):
            for output in node.output:
                yield from (graph.nodes[i] for i in graph.consumers.get(output, []))


def _make(
    graph: Graph,
    index: int,
    node: NodeProto,
    *,
    activations: Sequence[str] = (),
    weight: str | None = None,
    bias: str | None = None,
    axis: int | None = None,
    activation: bool = False,
    quantized_output: bool = True,
    pays: bool = True,
    nodes: list[int] | None = None,
    output: str | None = None,
) -> Unit:
    nodes, output = nodes or [index], output or node.output[0]
    if activation:
        follower = graph.only_reader(output)
        if follower is not None and quantization_absorbs(graph, follower):
            nodes.append(graph.producers[follower.output[0]])
            output = follower.output[0]
    inputs = tuple(dict.fromkeys(activations or node.input[:1]))
    names = [graph.nodes[i].name for i in nodes]
    names += [name for own in names for name in graph.merged.get(own, ())]
    op = Op(node.name, node.op_type, tuple(dict.fromkeys(names)), _choices(weight, axis, pays))
    return Unit(op, index, tuple(nodes), inputs, weight, bias or None, axis, output, quantized_output)


def _choices(weight: str | None, axis: int | None, pays: bool) -> tuple[OpConfig, ...]:
    granularities = GRANULARITIES if weight is not None and axis is not None else ("per_tensor",)
    int8 = [OpConfig(INT8, c, g, s) for s, g, c in product(SCHEMES, granularities, CALIBRATIONS)]
    return (*int8, FLOAT) if pays else (FLOAT, *int8)


def _is_float(graph: Graph, name: str) -> bool:
    return graph.types.get(name) == TensorProto.FLOAT


def _is_weight(graph: Graph, name: str) -> bool:
    array = graph.constants.get(name)
    return array is not None and array.dtype == np.float32 and array.ndim >= 2 and array.size > 0
