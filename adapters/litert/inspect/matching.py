"""The ops of the float model found again in another .tflite that was made from it, whoever made it.

Quantizers keep the names of tensors. The converter does not where it puts a DEQUANTIZE behind an operator: then that
one writes the tensor of the old name. And quaver spells a model that it converted anew, so that ops are looked for by
the names that are made from those of tensors, too. What is built otherwise is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from quaver.adapters.litert.build.builder import Builder
from quaver.adapters.litert.load.graph import DTYPES, WEIGHTS, Graph, Operator
from quaver.adapters.litert.load.names import Named, op_names
from quaver.adapters.litert.ops.units import activations
from quaver.affine import QuantizationParameters, QuantizedTensor

CASTS = ("QUANTIZE", "DEQUANTIZE")


def find_ops(builder: Builder, other: Graph) -> dict[str, Operator]:
    """Of each op that is built in the other model as in the float model, the operator there."""
    return _find(builder.graph, [unit.operator for unit in builder.units], other)


def find_others(builder: Builder, other: Graph) -> dict[str, tuple[Operator, Operator]]:
    """The same of the operators that are no ops: that of the float model, and the one there."""
    units, graph = {unit.operator.index for unit in builder.units}, builder.graph
    left = [
        op
        for op in graph.operators
        if op.index not in units and op.outputs and graph.is_float(op.outputs[0]) and activations(graph, op)
    ]
    found = _find(graph, left, other)
    return {graph.names[op.index]: (op, theirs) for op in left if (theirs := found.get(graph.names[op.index]))}


def _find(ours: Graph, operators: Iterable[Operator], other: Graph) -> dict[str, Operator]:
    """Operators of the float model found again, by their names."""
    by_tensor = {other.tensor_name(tensor): op for op in other.operators for tensor in op.outputs}
    by_name = named(other)
    found: dict[str, Operator] = {}
    taken: set[int] = set()
    for own in operators:
        name = ours.names[own.index]
        candidates = (by_tensor.get(ours.tensor_name(own.outputs[0])), by_name.get(name))
        for op in (_worker(other, op) for op in candidates if op is not None):
            if op is not None and op.index not in taken and _alike(ours, own, other, op):
                found[name] = op
                taken.add(op.index)
                break
    return found


def named(graph: Graph) -> dict[str, Operator]:
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


def _alike(ours: Graph, own: Operator, other: Graph, op: Operator) -> bool:
    """Whether an operator of the other model computes what ours does: the same type, operands and weight."""
    if op.kind != own.kind:
        return False
    pairs = list(zip(_values(own), _values(op), strict=False))
    if len(pairs) != len(list(_values(own))) or len(pairs) != len(list(_values(op))):
        return False
    if not all(_same_operand(ours, one, other, another) for one, another in pairs):
        return False
    before, after = weight_of(ours, own), weight_of(other, op)
    if before is None:
        return True
    return after is not None and list(ours.main.tensors[before].shape) == list(other.main.tensors[after].shape)


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


def read_parameters(graph: Graph, tensor: int) -> QuantizationParameters | None:
    """Those of what an operator reads in integers, or dequantized."""
    return None if tensor < 0 else parameters_of(graph, tensor) or parameters_of(graph, origin(graph, tensor))


def written_parameters(graph: Graph, tensor: int) -> QuantizationParameters | None:
    """Those of what an operator writes in integers, or what is quantized behind it."""
    casts = [graph.operators[reader] for reader in graph.readers.get(tensor, ())]
    behind = [parameters_of(graph, op.outputs[0]) for op in casts if op.kind == "QUANTIZE"]
    return parameters_of(graph, tensor) or next((found for found in behind if found is not None), None)


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


def is_integer(graph: Graph, op: Operator) -> bool:
    """Whether an operator that is no op works on integers: all that it computes with, and what it writes."""
    computed = [at for at in op.inputs if at >= 0 and (graph.is_float(at) or parameters_of(graph, at) is not None)]
    return bool(computed) and all(parameters_of(graph, at) is not None for at in (*computed, op.outputs[0]))


def _values(op: Operator) -> Iterator[int]:
    """What an operator reads, but for its bias: some quantizers add one of zeros."""
    bias = WEIGHTS.get(op.kind, (None, None))[1]
    return (tensor for slot, tensor in enumerate(op.inputs) if slot != bias)
