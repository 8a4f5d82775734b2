"""Exclusions: tensors and ops that lose too much in 8 bits, told from the graph alone.

- Probabilities beside something else. Detectors put the scores of a box beside its corners: 0 to 1 beside 0 to 640.
  With one 8-bit scale for both every score is 0, and the error at the outputs hardly shows it, for the corners are so
  much larger.
- Mask values. Attention masks hold -1e4 to -3.4e38 in place of infinity; a range with them has no step for anything
  else.
- The factors of a GELU, which is one float kernel.
- Arithmetic in front of a root, a logarithm or a quotient. A variance that is a difference of two squares falls below
  zero once either is rounded, and a small divisor is rounded to zero: the result is NaN or infinity.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from onnx import NodeProto, numpy_helper

from quaver.adapters.onnxrt.load.graph import Graph, attribute
from quaver.adapters.onnxrt.ops.passthrough import is_movement
from quaver.types import Array

# Ops whose outputs lie between 0 and 1, ops that keep the values of their first input, and ops whose outputs lie
# between 0 and 1 if all inputs do.
_MAKE_PROBABILITIES = {"HardSigmoid", "Sigmoid", "Softmax"}
_KEEP_PROBABILITIES = {
    "Cast", "Flatten", "Gather", "Identity", "MaxPool", "ReduceMax", "Reshape", "Slice", "Split", "Squeeze", "Tile",
    "Transpose", "Unsqueeze",
}  # fmt: skip
_COMBINE_PROBABILITIES = {"Concat", "Max", "Min", "Mul"}


def probabilities(graph: Graph) -> set[str]:
    """Return the tensors whose numbers all lie between 0 and 1, going by the ops that write them."""
    names: set[str] = set()
    for node in graph.nodes:  # in execution order
        if (
            node.op_type in _MAKE_PROBABILITIES
            or _is_softmax_quotient(graph, node)
            or (node.op_type in _KEEP_PROBABILITIES and node.input[0] in names)
            or (node.op_type in _COMBINE_PROBABILITIES and all(name in names for name in node.input))
        ):
            names.update(name for name in node.output if name)
    return names


def _is_softmax_quotient(graph: Graph, node: NodeProto) -> bool:
    """Return True for the last node of a Softmax in pieces: exponentials divided by their sum."""
    if node.op_type != "Div" or not all(name in graph.producers for name in node.input):
        return False
    power, total = (graph.nodes[graph.producers[name]] for name in node.input)
    return power.op_type == "Exp" and total.op_type == "ReduceSum" and total.input[0] == node.input[0]


def mixes_probabilities(node: NodeProto, shares: set[str]) -> bool:
    """Return True if a node joins probabilities and other numbers in one tensor."""
    return node.op_type == "Concat" and 0 < len(shares.intersection(node.input)) < len(set(node.input))


# A constant of this size stands for infinity: masks in use hold -1e4, -65504, -1e9 or -3.4e38.
MASK_MAGNITUDE = 1e4

# Ops that hand on what they read, or add something to it. Through any other op a mask value does not come unchanged.
_KEEP_MASK_VALUES = {
    "Add", "Cast", "CastLike", "Concat", "Div", "Expand", "Flatten", "Gather", "Identity", "Mul", "Neg", "Pad",
    "Reshape", "Slice", "Split", "Squeeze", "Sub", "Tile", "Transpose", "Trilu", "Unsqueeze", "Where",
}  # fmt: skip


def mask_value_tensors(graph: Graph) -> set[str]:
    """Return the tensors that may hold a mask value, wherever they stand between the constant and a Softmax."""
    holders = {name for name, array in graph.constants.items() if _has_mask_value(array)}
    constants = frozenset(holders)
    for node in graph.nodes:  # in execution order
        if node.op_type == "ConstantOfShape":
            value = attribute(node, "value")
            is_holder = value is not None and _has_mask_value(numpy_helper.to_array(value.t))
        else:
            sources = node.input[:1] if node.op_type in ("Div", "Gather", "Pad") else node.input
            is_holder = node.op_type in _KEEP_MASK_VALUES and any(name in holders for name in sources)
        if is_holder:
            holders.update(name for name in node.output if name)
    return holders - constants


def _has_mask_value(array: Array) -> bool:
    return array.dtype.kind == "f" and array.size > 0 and bool(np.max(np.abs(array)) >= MASK_MAGNITUDE)


def feeds_softmax(graph: Graph, name: str) -> bool:
    """Return True if a Softmax reads a tensor, directly or after one move, sum or selection."""
    return any(reader.op_type == "Softmax" for reader in _near_readers(graph, name))


def _near_readers(graph: Graph, name: str) -> Iterator[NodeProto]:
    """Yield the readers of a tensor, and the readers behind those that only move it, add to it or select of it."""
    for index in graph.consumers.get(name, []):
        node = graph.nodes[index]
        yield node
        if is_movement(graph, node) or node.op_type in ("Add", "Where"):
            for output in node.output:
                yield from (graph.nodes[i] for i in graph.consumers.get(output, []))


def is_gelu_factor(graph: Graph, name: str) -> bool:
    """Return True for 1 + erf(...) or 1 + tanh(...): the Mul with it ends a GELU, which is one float kernel."""
    producer = graph.nodes[graph.producers[name]] if name in graph.producers else None
    if producer is None or producer.op_type != "Add":
        return False
    kinds = [graph.nodes[graph.producers[source]].op_type for source in producer.input if source in graph.producers]
    return kinds in (["Erf"], ["Tanh"])


# Arithmetic that rounding may push out of the domain of a root or a quotient. Products with weights are not among it:
# they are what int8 is for, and where they are a divisor, the float model may divide by zero as well.
_ARITHMETIC = {
    "Add", "AveragePool", "Cast", "Clip", "Concat", "Div", "Expand", "GlobalAveragePool", "Identity", "Max", "Min",
    "Mul", "Neg", "ReduceMean", "ReduceSum", "Relu", "Reshape", "Sigmoid", "Slice", "Sqrt", "Squeeze", "Sub", "Sum",
    "Transpose", "Unsqueeze", "Where",
}  # fmt: skip
# Results that are positive or zero whatever the node reads, if the node itself runs in float.
_NEVER_NEGATIVE = {"Abs", "Clip", "Exp", "Max", "ReduceL2", "ReduceSumSquare", "Relu", "Sigmoid", "Softmax"}


def restricted_arithmetic(graph: Graph) -> set[int]:
    """Return the nodes that compute what a Sqrt, Log, Pow, Reciprocal or Div takes only a part of the numbers of."""
    nodes: set[int] = set()
    waiting = [(name, False) for node in graph.nodes for name in _restricted_operands(graph, node)]
    visited = set()
    while waiting:
        name, is_term = waiting.pop()
        index = graph.producers.get(name)
        if index is None or (name, is_term) in visited:
            continue
        visited.add((name, is_term))
        node = graph.nodes[index]
        is_square = node.op_type == "Mul" and node.input[0] == node.input[1]
        several = sum(source not in graph.constants for source in dict.fromkeys(node.input)) > 1
        if is_term and several and node.op_type in ("Add", "Mul", "Sum"):
            continue  # both terms of the difference begin with this sum
        if node.op_type not in _ARITHMETIC:
            continue
        nodes.add(index)
        if is_term or not (is_square or node.op_type in _NEVER_NEGATIVE):
            waiting += [(source, is_term or node.op_type == "Sub") for source in node.input if source]
    return nodes


def _restricted_operands(graph: Graph, node: NodeProto) -> list[str]:
    """Return the operand of a node that must be positive, or must not be zero."""
    if node.op_type == "Pow":
        exponent = graph.constants.get(node.input[1])
        takes_all = exponent is not None and bool(np.all((exponent >= 0) & (exponent == np.rint(exponent))))
        return [] if takes_all else [node.input[0]]
    at = {"Div": 1, "Log": 0, "Reciprocal": 0, "Sqrt": 0}.get(node.op_type)
    return [] if at is None or node.domain not in ("", "ai.onnx") else [node.input[at]]
