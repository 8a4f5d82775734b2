"""Find the operators that a user can toggle, and those that follow their neighbours.

The choices follow the quantizer (static int8 weights and activations; dynamic ranges). The default follows the kernels:
an operator that has an int8 kernel, but none in XNNPACK, runs slower than in float, often by ten times and more, as
`benchmarks/litert.py` measures.

"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product

from ai_edge_quantizer.utils.tfl_flatbuffer_utils import TFL_OP_CODE_TO_NAME, TFL_OP_NAME_TO_CODE

from quaver.adapters.litert.load.graph import NON_COMPUTING, OPERATOR_KINDS, WEIGHT_AND_BIAS, Graph, Operator
from quaver.ops import CALIBRATIONS, FLOAT, GRANULARITIES, INT8, Op, OpConfig
from quaver.types import PlainDict
from quaver.unquantizable import Unquantizable

# The quantizer's own name of each type.
QUANTIZER_NAMES: PlainDict = {OPERATOR_KINDS[code]: TFL_OP_CODE_TO_NAME[code] for code in TFL_OP_NAME_TO_CODE.values()}

_WITH_WEIGHT = frozenset(WEIGHT_AND_BIAS)
_ELEMENTWISE = {"ADD", "SUB", "MUL"}
_OTHER_KINDS = {
    "CONCATENATION", "GELU", "LOGISTIC", "MAXIMUM", "MEAN", "PACK", "REDUCE_MIN", "RESIZE_BILINEAR", "SUM", "TANH",
}  # fmt: skip
# Can run in int8, but fp32 by default: XNNPACK has no int8 kernel for them, and LiteRT's own is slow.
_SLOW = {"AVERAGE_POOL_2D", "DIV", "HARD_SWISH", "RELU", "RSQRT", "SQRT", "SQUARED_DIFFERENCE"}
# They only move values: they take the scale of their input, and run in int8 where that costs nothing.
_MOVEMENT = {
    "BROADCAST_TO", "GATHER", "GATHER_ND", "MAX_POOL_2D", "MIRROR_PAD", "PAD", "RESHAPE", "RESIZE_NEAREST_NEIGHBOR",
    "SLICE", "SPACE_TO_DEPTH", "SPLIT", "STRIDED_SLICE", "TRANSPOSE", "UNPACK",
}  # fmt: skip
_CHANNELS = {"CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV"}
# XNNPACK runs these with dynamic ranges as fast as with calibrated ones. A depthwise convolution takes three times as
# long as in float.
_DYNAMIC = {"CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV"}


@dataclass(frozen=True, slots=True)
class Unit:
    """An op and its operator.

    Attributes:
        op: what the user sees.
        operator: the operator in the graph.
        weight: index of the constant it multiplies with, if any.
    """

    op: Op
    operator: Operator
    weight: int | None


def find_units(graph: Graph) -> list[Unit]:
    """Return all operators that can run in int8, in graph order."""
    normalising = _normalization_operators(graph)
    return [
        _unit(graph, op, pays=op.kind not in _SLOW and op.index not in normalising)
        for op in graph.operators
        if _is_tunable(graph, op)
    ]


def find_passthrough(graph: Graph) -> dict[int, int]:
    """Return for each operator that only moves float values the tensor that it moves."""
    passthrough = {}
    for op in graph.operators:
        moved = [tensor for tensor in op.inputs if graph.is_float(tensor)]
        # The quantizer keeps an unread output in float, even if the others are int8.
        used = all(graph.readers.get(tensor) or tensor in graph.outputs for tensor in op.outputs)
        if op.kind in _MOVEMENT and len(moved) == 1 and used and not graph.is_constant(moved[0]):
            passthrough[op.index] = moved[0]
    return passthrough


def activations(graph: Graph, op: Operator) -> list[int]:
    """Return the float tensors that an operator reads, without constants."""
    return [tensor for tensor in dict.fromkeys(op.inputs) if graph.is_float(tensor) and not graph.is_constant(tensor)]


def _is_tunable(graph: Graph, op: Operator) -> bool:
    if (
        op.kind not in _WITH_WEIGHT | _ELEMENTWISE | _OTHER_KINDS | _SLOW
        or op.kind not in QUANTIZER_NAMES
        or len(op.outputs) != 1
    ):
        return False
    if not graph.is_float(op.outputs[0]) or not activations(graph, op):
        return False
    if op.kind in _WITH_WEIGHT:
        return _has_usable_weight(graph, op)
    if op.kind in _ELEMENTWISE | {"DIV", "MAXIMUM"}:
        return all(map(graph.is_float, op.inputs)) and not _is_before_softmax(graph, op)
    return op.kind not in ("CONCATENATION", "PACK") or all(map(graph.is_float, op.inputs))


def _has_usable_weight(graph: Graph, op: Operator) -> bool:
    _, bias = WEIGHT_AND_BIAS[op.kind]
    if bias is not None and bias < len(op.inputs) and op.inputs[bias] >= 0 and not graph.is_constant(op.inputs[bias]):
        return False
    return graph.weight(op) is not None or op.kind == "BATCH_MATMUL"


def _is_before_softmax(graph: Graph, op: Operator) -> bool:
    """Return True for an operator just before a softmax, which stays float.

    Attention masks contain values such as -1e9 there, which leave no level for the scores.
    """
    return any(reader.kind == "SOFTMAX" for reader in _readers(graph, op, 3))


def _readers(graph: Graph, op: Operator, steps: int) -> Iterator[Operator]:
    """Yield the operators that read an operator's output, also after it was moved or added to."""
    for tensor in op.outputs:
        for index in graph.readers.get(tensor, ()):
            reader = graph.operators[index]
            yield reader
            if steps > 1 and reader.kind in _MOVEMENT | {"ADD", "SELECT", "SELECT_V2"}:
                yield from _readers(graph, reader, steps - 1)


def _normalization_operators(graph: Graph) -> set[int]:
    """Return the operators of normalization layers, whose variance spans more orders than int8 has steps."""
    indices: set[int] = set()
    for op in graph.operators:
        if op.kind in ("RSQRT", "SQRT"):
            indices |= {reader.index for reader in _arithmetic(graph, op, 3)}
            indices |= set(_upstream_to_mean(graph, op, 4))
    return indices


def _arithmetic(graph: Graph, op: Operator, steps: int) -> Iterator[Operator]:
    for index in (index for tensor in op.outputs for index in graph.readers.get(tensor, ())):
        reader = graph.operators[index]
        if reader.kind in _ELEMENTWISE | {"DIV"}:
            yield reader
            if steps > 1:
                yield from _arithmetic(graph, reader, steps - 1)


def _upstream_to_mean(graph: Graph, op: Operator, steps: int) -> Iterator[int]:
    """Yield the operators from the root of a variance back to the mean."""
    for tensor in activations(graph, op)[-1:]:
        index = graph.writers.get(tensor)
        if index is None:
            return
        writer = graph.operators[index]
        if writer.kind in ("ADD", "MAXIMUM") and len(activations(graph, writer)) > 1:
            return
        if writer.kind in _ELEMENTWISE | {"MEAN", "SUM", "SQUARED_DIFFERENCE", "MAXIMUM"}:
            yield writer.index
            if steps > 1:
                yield from _upstream_to_mean(graph, writer, steps - 1)


def _is_grouped(graph: Graph, op: Operator, weight: int) -> bool:
    """Return True if a convolution reads its channels in groups, which no kernel with dynamic ranges supports."""
    read = graph.main.tensors[op.inputs[0]]
    return op.kind == "CONV_2D" and int(read.shape[-1]) != int(graph.main.tensors[weight].shape[-1])


def _unit(graph: Graph, op: Operator, pays: bool) -> Unit:
    weight = graph.weight(op)
    if op.kind == "BATCH_MATMUL" and weight is None:
        pays = False
    granularities = GRANULARITIES if weight is not None and op.kind in _CHANNELS else ("per_tensor",)
    int8 = tuple(OpConfig(INT8, c, g, "asym") for g, c in product(granularities, CALIBRATIONS))
    if weight is not None and op.kind in _DYNAMIC and not _is_grouped(graph, op, weight):
        int8 += tuple(OpConfig(INT8, mode="dynamic", granularity=g) for g in GRANULARITIES)
    choices = (*int8, FLOAT) if pays else (FLOAT, *int8)
    nodes = tuple(graph.tensor_name(op.outputs[0]).split(";"))
    return Unit(Op(graph.names[op.index], op.kind, nodes, choices), op, weight)


# Their bodies are other graphs of the file, which are not searched for ops.
_CONTROL_FLOW = {"CALL", "CALL_ONCE", "IF", "WHILE"}


def unquantizable_operators(graph: Graph, units: Iterable[Unit]) -> dict[int, str]:
    """Return the kind of each operator that computes and is no op, by its index."""
    tunable = {unit.operator.index for unit in units}
    return {
        op.index: op.kind
        for op in graph.operators
        if op.index not in tunable
        and (
            op.kind in _CONTROL_FLOW
            or op.kind.startswith("CUSTOM")
            or (op.kind not in NON_COMPUTING and activations(graph, op))
        )
    }


def unquantizable(graph: Graph, units: Iterable[Unit]) -> list[Unquantizable]:
    """Return the number of such operators of each kind, in graph order."""
    counts = Counter(unquantizable_operators(graph, units).values())
    return [Unquantizable(kind, count) for kind, count in counts.items()]
