"""Map the operators of a model to the ops of the float model, and tell how they run."""

from __future__ import annotations

from quaver.adapters.litert.build.builder import Builder
from quaver.adapters.litert.inspect.matching import find_ops, is_quantized, parameters_of
from quaver.adapters.litert.load.graph import Graph, Operator
from quaver.ops import FP32, INT8


def kernel_name(graph: Graph, op: Operator) -> str:
    """Return the operator's type, and its number type if that is not float."""
    if op.kind in ("QUANTIZE", "DEQUANTIZE"):
        return op.kind
    return f"{op.kind} int8" if is_quantized(graph, op) else op.kind


def owners(graph: Graph, builder: Builder | None) -> dict[int, str]:
    """Return the op that each operator belongs to.

    Quantizing a tensor belongs to the op that reads it, dequantizing to the op that wrote it.
    """
    if builder is None:
        return {}
    ops = {op.index: name for name, op in find_ops(builder, graph).items()}
    for op in graph.operators:
        if op.kind == "DEQUANTIZE":
            owner = ops.get(graph.writers.get(op.inputs[0], -1))
        elif op.kind == "QUANTIZE":
            readers = graph.readers.get(op.outputs[0], ())
            owner = next((ops[reader] for reader in readers if reader in ops), None)
        else:
            continue
        if owner is not None:
            ops[op.index] = owner
    return ops


def precisions(graph: Graph, builder: Builder | None) -> dict[str, str]:
    """Return how each op runs; or each operator, if there is no float model to name them."""
    if builder is not None:
        return {name: _precision(graph, op) for name, op in find_ops(builder, graph).items()}
    return {
        name: _precision(graph, op)
        for op, name in zip(graph.operators, graph.names, strict=True)
        if op.kind not in ("QUANTIZE", "DEQUANTIZE") and op.outputs and _is_real(graph, op.outputs[0])
    }


def _precision(graph: Graph, op: Operator) -> str:
    return str(INT8 if is_quantized(graph, op) else FP32)


def _is_real(graph: Graph, tensor: int) -> bool:
    """Return True if a tensor holds real numbers, not shapes or indices."""
    return graph.is_float(tensor) or parameters_of(graph, tensor) is not None
