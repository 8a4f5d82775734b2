"""The ops of the float model found again in another .tflite that was made from it, whoever made it.

Quantizers keep the names of tensors. The converter does not where it puts a DEQUANTIZE behind an operator: then that
one writes the tensor of the old name. And quaver spells a model that it converted anew, so that ops are looked for by
the names that are made from those of tensors, too. What is built otherwise is left out.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from quaver.adapters.litert.build.quantizing import Builder
from quaver.adapters.litert.read.graph import DTYPES, WEIGHTS, Graph, Operator
from quaver.adapters.litert.read.naming import Named, op_names
from quaver.adapters.litert.read.units import Unit
from quaver.quantization import QuantizationParameters, QuantizedTensor

CASTS = ("QUANTIZE", "DEQUANTIZE")


def find_ops(builder: Builder, other: Graph) -> dict[str, Operator]:
    """Of each op that is built in the other model as in the float model, the operator there."""
    by_tensor = {other.tensor_name(tensor): op for op in other.operators for tensor in op.outputs}
    by_name = _named(other)
    found: dict[str, Operator] = {}
    taken: set[int] = set()
    for unit in builder.units:
        candidates = (by_tensor.get(builder.output(unit.op.name)), by_name.get(unit.op.name))
        for op in (_worker(other, op) for op in candidates if op is not None):
            if op is not None and op.index not in taken and _alike(builder.graph, unit, other, op):
                found[unit.op.name] = op
                taken.add(op.index)
                break
    return found


def _named(graph: Graph) -> dict[str, Operator]:
    """Operators by the names they would have if nothing were quantized."""
    working = [op for op in graph.operators if op.kind not in CASTS]
    named = []
    for op in working:
        outputs = [graph.tensor_name(tensor) for tensor in op.outputs]
        weight = weight_of(graph, op)
        first = op.outputs[0] if op.outputs else -1
        computes = first >= 0 and (graph.is_float(first) or parameters_of(graph, first) is not None)
        named.append(Named(op.kind, outputs, "" if weight is None else graph.tensor_name(weight), computes))
    return dict(zip(op_names(named), working, strict=True))


def _worker(graph: Graph, op: Operator) -> Operator | None:
    """The operator that does the work, where what was found only quantizes or dequantizes its output."""
    while op.kind in CASTS:
        writer = graph.writers.get(op.inputs[0])
        if writer is None:
            return None
        op = graph.operators[writer]
    return op


def _alike(ours: Graph, unit: Unit, other: Graph, op: Operator) -> bool:
    """Whether an operator of the other model computes what the unit does: the same type, operands and weight."""
    if op.kind != unit.operator.kind:
        return False
    pairs = list(zip(_values(unit.operator), _values(op), strict=False))
    if len(pairs) != len(list(_values(unit.operator))) or len(pairs) != len(list(_values(op))):
        return False
    if not all(_same_operand(ours, one, other, another) for one, another in pairs):
        return False
    if unit.weight is None:
        return True
    weight = weight_of(other, op)
    return weight is not None and list(ours.main.tensors[unit.weight].shape) == list(other.main.tensors[weight].shape)


def _same_operand(ours: Graph, one: int, other: Graph, another: int) -> bool:
    """Whether two operands may hold the same: both are constants, or neither is and their names do not differ."""
    if one < 0 or another < 0:
        return one == another
    source = origin(other, another)
    if ours.is_constant(one) or other.is_constant(source):
        return ours.is_constant(one) == other.is_constant(source)
    name = other.tensor_name(source)
    return name == ours.tensor_name(one) or not ours.knows(name)


def weight_of(graph: Graph, op: Operator) -> int | None:
    """The constant that an operator multiplies with, in float or in integers."""
    slot = WEIGHTS.get(op.kind, (None, None))[0]
    if slot is None or slot >= len(op.inputs):
        return None
    tensor = origin(graph, op.inputs[slot])
    return tensor if graph.is_constant(tensor) else None


def origin(graph: Graph, tensor: int) -> int:
    """The tensor that was quantized or dequantized into this one."""
    writer = graph.writers.get(tensor)
    while writer is not None and graph.operators[writer].kind in CASTS:
        tensor = graph.operators[writer].inputs[0]
        writer = graph.writers.get(tensor)
    return tensor


def parameters_of(graph: Graph, tensor: int) -> QuantizationParameters | None:
    """Scale and zero point of a tensor in integers; None if it is float, or has a scale for each channel."""
    found = None if tensor < 0 or graph.is_float(tensor) else _parameters(graph, tensor)
    return found if found is not None and found.axis is None else None


def quantized_constant(graph: Graph, tensor: int) -> QuantizedTensor | None:
    """A constant in integers; None if it is float, or cannot be read."""
    values, found = graph.constant(tensor), _parameters(graph, tensor)
    return None if values is None or values.dtype.kind not in "iu" or found is None else QuantizedTensor(values, found)


def _parameters(graph: Graph, tensor: int) -> QuantizationParameters | None:
    entry = graph.main.tensors[tensor]
    known = entry.quantization
    if known is None or known.scale is None or not len(known.scale):
        return None
    scale, kind = np.asarray(known.scale, np.float32), DTYPES.get(entry.type, np.dtype(np.int64))
    given = np.zeros(len(scale)) if known.zeroPoint is None or not len(known.zeroPoint) else np.asarray(known.zeroPoint)
    if len(scale) > 1:
        return QuantizationParameters(scale, given.astype(kind), int(known.quantizedDimension))
    return QuantizationParameters(scale.reshape(()), given.astype(kind).reshape(()))


def is_quantized(graph: Graph, op: Operator) -> bool:
    """Whether an operator reads a weight or an activation in integers, or writes one."""
    weight = weight_of(graph, op)
    if weight is not None and quantized_constant(graph, weight) is not None:
        return True
    return any(parameters_of(graph, tensor) is not None for tensor in (*_values(op), *op.outputs))


def _values(op: Operator) -> Iterator[int]:
    """What an operator reads, but for its bias: some quantizers add one of zeros."""
    bias = WEIGHTS.get(op.kind, (None, None))[1]
    return (tensor for slot, tensor in enumerate(op.inputs) if slot != bias)
