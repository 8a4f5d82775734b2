"""Find the units of a graph: the nodes that can run in int8 as one op, and the choices of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from onnx import NodeProto, TensorProto

from quaver.adapters.onnxrt.load.graph import Graph, integer, real
from quaver.adapters.onnxrt.ops.blocks import offer_int4
from quaver.adapters.onnxrt.ops.decoder import decoder_units, is_decoder
from quaver.adapters.onnxrt.ops.exclusions import (
    feeds_softmax,
    is_gelu_factor,
    mask_value_tensors,
    mixes_probabilities,
    probabilities,
    restricted_arithmetic,
)
from quaver.adapters.onnxrt.ops.passthrough import (
    bounds,
    has_int8_average,
    is_global_average_pool,
    passed_through,
    scale_roots,
)
from quaver.adapters.onnxrt.ops.unit import Unit, UnitParts, make_unit
from quaver.adapters.options import OPS_VERSION
from quaver.ops import FLOAT, GRANULARITIES, INT8, OpConfig
from quaver.types import Array

# Ops with one input. Each has a kernel that reads and writes uint8.
_UNARY = ("AveragePool", "GlobalAveragePool", "LeakyRelu", "Sigmoid")
_BINARY = ("Add", "Mul")

# Judgement: an int8 table of fewer numbers saves too little to be worth a decision.
_TABLE_ELEMENTS = 2**14
# Rows shorter than this share one scale: a float32 scale for each would take half the memory of the row or more.
_ROW_ELEMENTS = 8

# More choices of a product with a constant matrix: ranges computed at run time, or int8 for the weight only.
_PRODUCT_CHOICES = (
    *(OpConfig(INT8, mode="dynamic", granularity=granularity) for granularity in GRANULARITIES),
    OpConfig(INT8, mode="weight_only"),
)

# Maximum width of an int8 step, as a fraction of the root mean square of a PRelu's slopes. Judgement: activations have
# about the same.
_MAX_STEP = 1 / 16


def find_units(graph: Graph, ops_version: int = OPS_VERSION) -> list[Unit]:
    """Return all ops of a graph that can run in int8, in graph order.

    Args:
        graph: the float graph, with types inferred.
        ops_version: which ops to find; version 1 finds only the ops of quaver 0.1.0.
    """
    units = []
    absorbed: set[int] = set()
    roots = scale_roots(graph)
    uint8_outputs: set[str] = set()
    mask_tensors, probability_tensors = mask_value_tensors(graph) if ops_version > 1 else set(), probabilities(graph)
    restricted = restricted_arithmetic(graph) if ops_version > 3 else set()
    for index, node in enumerate(graph.nodes):
        if index in absorbed or index in restricted or node.domain not in ("", "ai.onnx"):
            continue
        unit = _unit(graph, index, node)
        if unit is None or (unit.is_newer_than_0_1_0 and ops_version == 1):
            continue
        if mask_tensors.intersection(unit.activations) or (unit.quantized_output and unit.output in mask_tensors):
            continue
        if unit.is_bridge_only and not all(roots.get(name, name) in uint8_outputs for name in unit.activations):
            continue
        if mixes_probabilities(node, probability_tensors):
            unit = replace(unit, op=replace(unit.op, choices=(FLOAT, *unit.op.quantized_choices)))
        units.append(unit)
        absorbed.update(unit.nodes)
        if unit.quantized_output:
            uint8_outputs.add(unit.output)
    if ops_version > 3 and is_decoder(graph):
        return decoder_units(graph, units)
    return _without_open_bridges(units, roots)


def _without_open_bridges(units: list[Unit], roots: dict[str, str]) -> list[Unit]:
    """Drop ops that only connect int8 ops and whose output no int8 op reads: int8 would save nothing there."""
    remaining: list[Unit] = []
    read_tensors: set[str] = set()
    for unit in reversed(units):
        if not unit.is_bridge_only or unit.output in read_tensors:
            remaining.append(unit)
            read_tensors.update(roots.get(name, name) for name in unit.activations)
    return remaining[::-1]


def _unit(graph: Graph, index: int, node: NodeProto) -> Unit | None:
    if not node.input or not node.output or not _is_float(graph, node.output[0]):
        return None
    if not _is_float(graph, node.input[0]) and node.op_type != "Where":
        return None
    return _RULES.get(node.op_type, _passthrough)(graph, index, node)


def _convolution(graph: Graph, index: int, node: NodeProto) -> Unit | None:
    if not _takes_constant_kernel(graph, node):
        return None
    bias = node.input[2] if len(node.input) > 2 else ""
    unit = make_unit(graph, index, UnitParts(weight=node.input[1], bias=bias, axis=0, takes_activation=True))
    # Weight-only int8 makes the model smaller but slower, so it comes after fp32.
    return _offer(graph, unit, OpConfig(INT8, mode="weight_only"), last=True)


def _transposed_convolution(graph: Graph, index: int, node: NodeProto) -> Unit | None:
    """Return a ConvTranspose. It has no int8 kernel, so fp32 is its default."""
    if not _takes_constant_kernel(graph, node):
        return None
    parts = UnitParts(weight=node.input[1], quantized_output=False, is_int8_by_default=False)
    weight_only = OpConfig(INT8, granularity="per_tensor", mode="weight_only")
    return _offer(graph, make_unit(graph, index, parts), weight_only, last=True)


def _takes_constant_kernel(graph: Graph, node: NodeProto) -> bool:
    bias = node.input[2] if len(node.input) > 2 else ""
    if node.input[0] in graph.constants or not _is_weight(graph, node.input[1]):
        return False
    return not bias or bias in graph.constants


def _gemm(graph: Graph, index: int, node: NodeProto) -> Unit | None:
    weight, bias = node.input[1], node.input[2] if len(node.input) > 2 else ""
    is_plain = real(node, "alpha", 1.0) == 1.0 and real(node, "beta", 1.0) == 1.0 and not integer(node, "transA", 0)
    if not is_plain or node.input[0] in graph.constants or not _is_weight(graph, weight):
        return None
    shape = graph.constants[weight].shape
    axis = 0 if integer(node, "transB", 0) else 1
    if len(shape) != 2:
        return None
    if bias and (bias not in graph.constants or graph.constants[bias].shape != (shape[axis],)):
        return None
    parts = UnitParts(weight=weight, bias=bias, axis=axis, quantized_output=False, takes_activation=True)
    return _offer(graph, make_unit(graph, index, parts), *_PRODUCT_CHOICES)


def _matmul(graph: Graph, index: int, node: NodeProto) -> Unit | None:
    left, right = node.input
    if left in graph.constants:
        return None
    if right not in graph.constants:
        if not _is_float(graph, right):
            return None
        return make_unit(graph, index, UnitParts(activations=(left, right), quantized_output=False))
    if not _is_weight(graph, right):
        return None
    axis = 1 if graph.constants[right].ndim == 2 else None
    output, addition = node.output[0], graph.only_reader(node.output[0])
    more_nodes: tuple[int, ...] = ()
    if addition is not None and addition.op_type == "Add" and _is_bias(graph, addition, output, graph.constants[right]):
        output = addition.output[0]
        more_nodes = (graph.producers[output],)
    parts = UnitParts(weight=right, axis=axis, quantized_output=False, more_nodes=more_nodes, output=output)
    unit = make_unit(graph, index, parts)
    return unit if axis is None else _offer(graph, unit, *_PRODUCT_CHOICES)


def _lstm(graph: Graph, index: int, node: NodeProto) -> Unit | None:
    """Return an LSTM with constant weights whose sequence is the first axis: the int8 kernel supports no other."""
    if node.input[0] in graph.constants or integer(node, "layout", 0):
        return None
    if not all(_is_weight(graph, name) for name in node.input[1:3]):
        return None
    output = next(name for name in node.output if name)
    unit = make_unit(graph, index, UnitParts(quantized_output=False, output=output))
    choices = [OpConfig(INT8, mode="dynamic", granularity=granularity) for granularity in GRANULARITIES]
    return replace(unit, op=replace(unit.op, choices=(*choices, FLOAT)))


def _binary_or_concat(graph: Graph, index: int, node: NodeProto) -> Unit | None:
    """Return an Add, Mul or Concat of activations, or of an activation and a constant operand.

    An Add or Mul just before a Softmax stays float. It may apply a mask with values of -1e4 to -3e38, and an int8 range
    that holds them leaves no steps for the scores.
    """
    if len(node.input) < 2 or not all(_is_float(graph, name) for name in node.input):
        return None
    activations = [name for name in node.input if name not in graph.constants]
    operand = _constant_operand(graph, node, activations)
    if len(activations) < len(node.input) and operand is None:
        return None
    if node.op_type in _BINARY and feeds_softmax(graph, node.output[0]):
        return None
    if node.op_type == "Mul" and any(is_gelu_factor(graph, name) for name in node.input):
        return None
    parts = UnitParts(activations=tuple(activations), takes_activation=node.op_type == "Add")
    return replace(make_unit(graph, index, parts), operand=operand)


def _constant_operand(graph: Graph, node: NodeProto, activations: Sequence[str]) -> str | None:
    """Return the constant of an Add or Mul that uint8 represents well: a single number, or the slopes of a PRelu."""
    constants = [str(name) for name in node.input if name in graph.constants]
    if node.op_type not in _BINARY or len(activations) != 1:
        return None
    if graph.constants[constants[0]].size != 1 and not _are_slopes(graph, node, activations[0], constants[0]):
        return None
    return constants[0] if graph.constants[constants[0]].ndim <= graph.ranks.get(activations[0], 0) else None


def _are_slopes(graph: Graph, node: NodeProto, source: str, constant: str) -> bool:
    """Return True for slopes of a PRelu that 8 bits represent about as well as activations."""
    producer, factors = graph.producers.get(source), graph.constants[constant]
    if node.op_type != "Mul" or producer is None or graph.nodes[producer].op_type != "Clip":
        return False
    if bounds(graph, graph.nodes[producer]) != (None, 0.0) or sum(size > 1 for size in factors.shape) != 1:
        return False
    low, high = min(float(factors.min()), 0.0), max(float(factors.max()), 0.0)
    return (high - low) / 255 < _MAX_STEP * float(np.sqrt(np.square(factors, dtype=np.float64).mean()))


def _unary(graph: Graph, index: int, node: NodeProto) -> Unit | None:
    if node.input[0] in graph.constants or (node.op_type == "AveragePool" and not has_int8_average(node)):
        return None
    return make_unit(graph, index, UnitParts())


def _hard_sigmoid(graph: Graph, index: int, node: NodeProto) -> Unit | None:
    """Return a HardSigmoid, clip(alpha x + beta, 0, 1), which can be a clip of integers; see `build/integer_ops.py`."""
    slope, shift = real(node, "alpha", 0.2), real(node, "beta", 0.5)
    if node.input[0] in graph.constants or slope <= 0 or not 0 <= shift <= 1:
        return None
    return replace(make_unit(graph, index, UnitParts()), hard_sigmoid=(slope, shift))


def _embedding(graph: Graph, index: int, node: NodeProto) -> Unit | None:
    """Return a lookup of rows in a large constant table, stored in int8. It needs no arithmetic and no calibration."""
    name, row_numbers = node.input
    if not _is_weight(graph, name) or row_numbers in graph.constants:
        return None
    table = graph.constants[name]
    if table.size < _TABLE_ELEMENTS:
        return None
    axis = integer(node, "axis", 0) % table.ndim
    row_axis = axis if table.size >= _ROW_ELEMENTS * table.shape[axis] else None
    unit = make_unit(graph, index, UnitParts(weight=name, axis=row_axis))
    granularities = ("per_tensor",) if row_axis is None else GRANULARITIES
    choices = [OpConfig(INT8, granularity=granularity, mode="weight_only") for granularity in granularities]
    op = offer_int4(graph, replace(unit.op, choices=(*choices, FLOAT)), node, name)
    return replace(unit, op=op, activations=())


def _selection(graph: Graph, index: int, node: NodeProto) -> Unit | None:
    """Return a Where of two activations, unless a Softmax reads it: it may insert mask values."""
    alternatives = node.input[1:]
    if any(name in graph.constants or not _is_float(graph, name) for name in alternatives):
        return None
    if feeds_softmax(graph, node.output[0]):
        return None
    return make_unit(graph, index, UnitParts(activations=tuple(alternatives)))


def _mean(graph: Graph, index: int, node: NodeProto) -> Unit | None:
    return make_unit(graph, index, UnitParts()) if is_global_average_pool(graph, node) else None


def _passthrough(graph: Graph, index: int, node: NodeProto) -> Unit | None:
    source = passed_through(graph, node)
    if source is None or not _is_float(graph, source):
        return None
    return replace(make_unit(graph, index, UnitParts(activations=(source,))), is_passthrough=True)


# The function that makes a unit of a node, by op type. Nodes of all other types may be passthrough.
_RULES: dict[str, Callable[[Graph, int, NodeProto], Unit | None]] = {
    "Conv": _convolution,
    "ConvTranspose": _transposed_convolution,
    "Gemm": _gemm,
    "MatMul": _matmul,
    "LSTM": _lstm,
    "Concat": _binary_or_concat,
    **dict.fromkeys(_BINARY, _binary_or_concat),
    **dict.fromkeys(_UNARY, _unary),
    "HardSigmoid": _hard_sigmoid,
    "Gather": _embedding,
    "Where": _selection,
    "ReduceMean": _mean,
}


def _offer(graph: Graph, unit: Unit, *more: OpConfig, last: bool = False) -> Unit:
    """Return the unit with more choices: before fp32, because they can be faster, or `last`.

    A weight-only choice needs a weight of its own: a shared one is not fused with its DequantizeLinear, and would be
    dequantized at each run.
    """
    choices = unit.op.choices
    if unit.weight in graph.captured or len(graph.consumers.get(unit.weight or "", ())) > 1:
        more = tuple(choice for choice in more if choice.mode != "weight_only")
    at = len(choices) if last else choices.index(FLOAT)
    op = replace(unit.op, choices=(*choices[:at], *more, *choices[at:]))
    node = graph.nodes[unit.anchor]
    if node.op_type in ("Conv", "Gemm", "MatMul") and unit.weight is not None:
        op = offer_int4(graph, op, node, unit.weight)
    return replace(unit, op=op)


def _is_bias(graph: Graph, addition: NodeProto, product: str, weight: Array) -> bool:
    bias = next((name for name in addition.input if name != product), "")
    return bias in graph.constants and graph.constants[bias].shape == (weight.shape[-1],)


def _is_float(graph: Graph, name: str) -> bool:
    return graph.types.get(name) == TensorProto.FLOAT


def _is_weight(graph: Graph, name: str) -> bool:
    array = graph.constants.get(name)
    return array is not None and array.dtype == np.float32 and array.ndim >= 2 and array.size > 0
