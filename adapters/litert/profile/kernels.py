"""Which operator of a model belongs to which op of the float model, and how it runs."""

from __future__ import annotations

from quaver.adapters.litert.build.builder import Builder
from quaver.adapters.litert.inspect.matching import find_ops, is_quantized, parameters_of
from quaver.adapters.litert.load.graph import Graph, Operator
from quaver.ops import FP32, INT8


def kernel_name(graph: Graph, op: Operator) -> str:
    """What an operator is, in the runtime's words, and in which type it computes if that is not float."""
    if op.kind in ("QUANTIZE", "DEQUANTIZE"):
        return op.kind
    return f"{op.kind} int8" if is_quantized(graph, op) else op.kind


def owners(graph: Graph, builder: Builder | None) -> dict[int, str]:
    """For each operator the op it belongs to.

    Quantizing a tensor belongs to the op that reads it, dequantizing to the op that wrote it.
    """
    if builder is None:
        return {}
    found = {op.index: name for name, op in find_ops(builder, graph).items()}
    for op in graph.operators:
        if op.kind == "DEQUANTIZE":
            owner = found.get(graph.writers.get(op.inputs[0], -1))
        elif op.kind == "QUANTIZE":
            readers = graph.readers.get(op.outputs[0], ())
            owner = next((found[reader] for reader in readers if reader in found), None)
        else:
            continue
        if owner is not None:
            found[op.index] = owner
    return found


def precisions(graph: Graph, builder: Builder | None) -> dict[str, str]:
    """How each op runs, or each operator if there is no float model to name them."""
    if builder is not None:
        return {name: _precision(graph, op) for name, op in find_ops(builder, graph).items()}
    return {
        name: _precision(graph, op)
        for op, name in zip(graph.operators, graph.names, strict=True)
        if op.kind not in ("QUANTIZE", "DEQUANTIZE") and op.outputs and _real(graph, op.outputs[0])
    }


def _precision(graph: Graph, op: Operator) -> str:
    return str(INT8 if is_quantized(graph, op) else FP32)


def _real(graph: Graph, tensor: int) -> bool:
    """Whether a tensor holds real numbers, not shapes or indices."""
    return graph.is_float(tensor) or parameters_of(graph, tensor) is not None
