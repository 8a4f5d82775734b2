"""Find the ops of the float model in another .tflite that was made from it by any tool.

Quantizers keep the names of tensors. The converter does not where it puts a DEQUANTIZE behind an operator: then that
one writes the tensor of the old name. And quaver renames the tensors of a model that it converted, so ops are also
looked up by the names that are made from those of tensors. Ops that are built differently are left out.

"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from quaver.adapters.litert.build.builder import Builder
from quaver.adapters.litert.load.graph import DTYPES, WEIGHT_AND_BIAS, Graph, Operator
from quaver.adapters.litert.load.names import OperatorNaming, op_names
from quaver.adapters.litert.ops.units import activations
from quaver.affine import QuantizationParameters, QuantizedTensor

CASTS = ("QUANTIZE", "DEQUANTIZE")


def find_ops(builder: Builder, other: Graph) -> dict[str, Operator]:
    """Return for each op that the other model builds like the float model the operator there."""
    return _find(builder.graph, [unit.operator for unit in builder.units], other)


def find_untuned(builder: Builder, other: Graph) -> dict[str, tuple[Operator, Operator]]:
    """Return the operators that are no ops, as pairs of the float model's and the other model's."""
    units, graph = {unit.operator.index for unit in builder.units}, builder.graph
    untuned = [
        op
        for op in graph.operators
        if op.index not in units and op.outputs and graph.is_float(op.outputs[0]) and activations(graph, op)
    ]
    matched = _find(graph, untuned, other)
    return {graph.names[op.index]: (op, theirs) for op in untuned if (theirs := matched.get(graph.names[op.index]))}


def _find(ours: Graph, operators: Iterable[Operator], other: Graph) -> dict[str, Operator]:
    """Find operators of the float model by their names."""
    by_tensor = {other.tensor_name(tensor): op for op in other.operators for tensor in op.outputs}
    by_name = operators_by_float_name(other)
    matched: dict[str, Operator] = {}
    used: set[int] = set()
    for own in operators:
        name = ours.names[own.index]
        candidates = (by_tensor.get(ours.tensor_name(own.outputs[0])), by_name.get(name))
        for op in (_before_casts(other, op) for op in candidates if op is not None):
            if op is not None and op.index not in used and _computes_the_same(ours, own, other, op):
                matched[name] = op
                used.add(op.index)
                break
    return matched


def operators_by_float_name(graph: Graph) -> dict[str, Operator]:
    """Return operators by the names that they would have if nothing were quantized."""
    working = [op for op in graph.operators if op.kind not in CASTS]
    namings = []
    for op in working:
        outputs = [graph.tensor_name(tensor) for tensor in op.outputs]
        weight = weight_of(graph, op)
        first = op.outputs[0] if op.outputs else -1
        computes = first >= 0 and (graph.is_float(first) or parameters_of(graph, first) is not None)
        namings.append(OperatorNaming(op.kind, outputs, "" if weight is None else graph.tensor_name(weight), computes))
    return dict(zip(op_names(namings), working, strict=True))


def _before_casts(graph: Graph, op: Operator) -> Operator | None:
    """Return the operator that does the work, where this one only quantizes or dequantizes its output."""
    while op.kind in CASTS:
        writer = graph.writers.get(op.inputs[0])
        if writer is None:
            return None
        op = graph.operators[writer]
    return op


def _computes_the_same(ours: Graph, own: Operator, other: Graph, op: Operator) -> bool:
    """Return True if an operator of the other model has the same type, operands and weight as ours."""
    if op.kind != own.kind:
        return False
    pairs = list(zip(_values(own), _values(op), strict=False))
    if len(pairs) != len(list(_values(own))) or len(pairs) != len(list(_values(op))):
        return False
    if not all(_same_operand(ours, own_operand, other, operand) for own_operand, operand in pairs):
        return False
    before, after = weight_of(ours, own), weight_of(other, op)
    if before is None:
        return True
    return after is not None and list(ours.main.tensors[before].shape) == list(other.main.tensors[after].shape)


def _same_operand(ours: Graph, own_operand: int, other: Graph, operand: int) -> bool:
    """Return True if two operands may be the same: both constants, or neither and with names that do not differ."""
    if own_operand < 0 or operand < 0:
        return own_operand == operand
    source = origin(other, operand)
    if ours.is_constant(own_operand) or other.is_constant(source):
        return ours.is_constant(own_operand) == other.is_constant(source)
    name = other.tensor_name(source)
    return name == ours.tensor_name(own_operand) or not ours.has_tensor(name)


def weight_of(graph: Graph, op: Operator) -> int | None:
    """Return the constant that an operator multiplies with, in float or in integers."""
    slot = WEIGHT_AND_BIAS.get(op.kind, (None, None))[0]
    if slot is None or slot >= len(op.inputs):
        return None
    tensor = origin(graph, op.inputs[slot])
    return tensor if graph.is_constant(tensor) else None


def origin(graph: Graph, tensor: int) -> int:
    """Return the tensor that was quantized or dequantized into this one."""
    writer = graph.writers.get(tensor)
    while writer is not None and graph.operators[writer].kind in CASTS:
        tensor = graph.operators[writer].inputs[0]
        writer = graph.writers.get(tensor)
    return tensor


def parameters_of(graph: Graph, tensor: int) -> QuantizationParameters | None:
    """Return scale and zero point of an integer tensor; None if it is float, or has a scale for each channel."""
    parameters = None if tensor < 0 or graph.is_float(tensor) else _parameters(graph, tensor)
    return parameters if parameters is not None and parameters.axis is None else None


def read_parameters(graph: Graph, tensor: int) -> QuantizationParameters | None:
    """Return scale and zero point of a tensor that an operator reads, in integers or dequantized."""
    return None if tensor < 0 else parameters_of(graph, tensor) or parameters_of(graph, origin(graph, tensor))


def written_parameters(graph: Graph, tensor: int) -> QuantizationParameters | None:
    """Return scale and zero point of a tensor that an operator writes, in integers or quantized behind it."""
    casts = [graph.operators[reader] for reader in graph.readers.get(tensor, ())]
    behind = [parameters_of(graph, op.outputs[0]) for op in casts if op.kind == "QUANTIZE"]
    return parameters_of(graph, tensor) or next((parameters for parameters in behind if parameters is not None), None)


def quantized_constant(graph: Graph, tensor: int) -> QuantizedTensor | None:
    """Return a constant in integers; None if it is float, or cannot be read."""
    values, parameters = graph.constant(tensor), _parameters(graph, tensor)
    return (
        None
        if values is None or values.dtype.kind not in "iu" or parameters is None
        else QuantizedTensor(values, parameters)
    )


def _parameters(graph: Graph, tensor: int) -> QuantizationParameters | None:
    entry = graph.main.tensors[tensor]
    stored = entry.quantization
    if stored is None or stored.scale is None or not len(stored.scale):
        return None
    scale, kind = np.asarray(stored.scale, np.float32), DTYPES.get(entry.type, np.dtype(np.int64))
    zero_points = (
        np.zeros(len(scale)) if stored.zeroPoint is None or not len(stored.zeroPoint) else np.asarray(stored.zeroPoint)
    )
    if len(scale) > 1:
        return QuantizationParameters(scale, zero_points.astype(kind), int(stored.quantizedDimension))
    return QuantizationParameters(scale.reshape(()), zero_points.astype(kind).reshape(()))


def is_quantized(graph: Graph, op: Operator) -> bool:
    """Return True if an operator reads a weight or an activation in integers, or writes one."""
    weight = weight_of(graph, op)
    if weight is not None and quantized_constant(graph, weight) is not None:
        return True
    return any(parameters_of(graph, tensor) is not None for tensor in (*_values(op), *op.outputs))


def is_integer(graph: Graph, op: Operator) -> bool:
    """Return True if an operator that is no op computes with integers alone, and writes them."""
    computed = [at for at in op.inputs if at >= 0 and (graph.is_float(at) or parameters_of(graph, at) is not None)]
    return bool(computed) and all(parameters_of(graph, at) is not None for at in (*computed, op.outputs[0]))


def _values(op: Operator) -> Iterator[int]:
    """Return the tensors that an operator reads except its bias, because some quantizers add one of zeros."""
    bias = WEIGHT_AND_BIAS.get(op.kind, (None, None))[1]
    return (tensor for slot, tensor in enumerate(op.inputs) if slot != bias)
