"""Which operators a user can toggle, and which follow along.

What is on offer follows the quantizer (static int8, weights and activations; dynamic ranges); what is the default
follows the kernels: an operator that has an int8 kernel, but none in XNNPACK, runs slower than in float, often by ten
times and more.
`benchmarks/litert.py` measures that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product

from ai_edge_quantizer.utils.tfl_flatbuffer_utils import TFL_OP_CODE_TO_NAME, TFL_OP_NAME_TO_CODE

from quaver.adapters.litert.load.graph import KINDS, STILL, WEIGHTS, Graph, Operator
from quaver.ops import CALIBRATIONS, FLOAT, GRANULARITIES, INT8, Op, OpConfig
from quaver.types import PlainDict
from quaver.unquantizable import Unquantizable

# The quantizer's own name of each type.
KEYS: PlainDict = {KINDS[code]: TFL_OP_CODE_TO_NAME[code] for code in TFL_OP_NAME_TO_CODE.values()}

_WEIGHTY = frozenset(WEIGHTS)
_ELEMENTWISE = {"ADD", "SUB", "MUL"}
_PLAIN = {
    "CONCATENATION", "GELU", "LOGISTIC", "MAXIMUM", "MEAN", "PACK", "REDUCE_MIN", "RESIZE_BILINEAR", "SUM", "TANH",
}  # fmt: skip
# On offer, but fp32 by default: XNNPACK has no int8 kernel for them, and the one there is is slow.
_SLOW = {"AVERAGE_POOL_2D", "DIV", "HARD_SWISH", "RELU", "RSQRT", "SQRT", "SQUARED_DIFFERENCE"}
# They only move values about: they take the scale of what they move, and run in int8 when that costs nothing.
_MOVEMENT = {
    "BROADCAST_TO", "GATHER", "GATHER_ND", "MAX_POOL_2D", "MIRROR_PAD", "PAD", "RESHAPE", "RESIZE_NEAREST_NEIGHBOR",
    "SLICE", "SPACE_TO_DEPTH", "SPLIT", "STRIDED_SLICE", "TRANSPOSE", "UNPACK",
}  # fmt: skip
_CHANNELS = {"CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV"}
# What XNNPACK runs with ranges taken as the model runs, as fast as with calibrated ones. A depthwise convolution takes
# three times as long as in float.
_DYNAMIC = {"CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV"}


@dataclass(frozen=True, slots=True)
class Unit:
    """An op as the adapter sees it.

    Attributes:
        op: what the user sees.
        operator: the operator in the graph.
        weight: index of the constant it multiplies with, if any.
    """

    op: Op
    operator: Operator
    weight: int | None


def find_units(graph: Graph) -> list[Unit]:
    """All operators that can run in int8, in graph order."""
    normalising = _normalising(graph)
    return [
        _unit(graph, op, pays=op.kind not in _SLOW and op.index not in normalising)
        for op in graph.operators
        if _on_offer(graph, op)
    ]


def find_followers(graph: Graph) -> dict[int, int]:
    """For each operator that only moves float values about, the tensor it moves."""
    followers = {}
    for op in graph.operators:
        moved = [tensor for tensor in op.inputs if graph.is_float(tensor)]
        # The quantizer leaves an output that nobody reads in float, beside others in int8.
        used = all(graph.readers.get(tensor) or tensor in graph.outputs for tensor in op.outputs)
        if op.kind in _MOVEMENT and len(moved) == 1 and used and not graph.is_constant(moved[0]):
            followers[op.index] = moved[0]
    return followers


def activations(graph: Graph, op: Operator) -> list[int]:
    """The float tensors an operator reads that are not constants."""
    return [tensor for tensor in dict.fromkeys(op.inputs) if graph.is_float(tensor) and not graph.is_constant(tensor)]


def _on_offer(graph: Graph, op: Operator) -> bool:
    if op.kind not in _WEIGHTY | _ELEMENTWISE | _PLAIN | _SLOW or op.kind not in KEYS or len(op.outputs) != 1:
        return False
    if not graph.is_float(op.outputs[0]) or not activations(graph, op):
        return False
    if op.kind in _WEIGHTY:
        return _weighty(graph, op)
    if op.kind in _ELEMENTWISE | {"DIV", "MAXIMUM"}:
        return all(map(graph.is_float, op.inputs)) and not _masks(graph, op)
    return op.kind not in ("CONCATENATION", "PACK") or all(map(graph.is_float, op.inputs))


def _weighty(graph: Graph, op: Operator) -> bool:
    _, bias = WEIGHTS[op.kind]
    if bias is not None and bias < len(op.inputs) and op.inputs[bias] >= 0 and not graph.is_constant(op.inputs[bias]):
        return False
    return graph.weight(op) is not None or op.kind == "BATCH_MATMUL"


def _masks(graph: Graph, op: Operator) -> bool:
    """What is added or multiplied just before a softmax stays float: attention masks carry sentinels of -1e9, which
    leave no level for the scores.
    """
    return any(reader.kind == "SOFTMAX" for reader in _readers(graph, op, 3))


def _readers(graph: Graph, op: Operator, steps: int) -> Iterator[Operator]:
    """Who reads what an operator writes, also after it was moved about or added to."""
    for tensor in op.outputs:
        for index in graph.readers.get(tensor, ()):
            reader = graph.operators[index]
            yield reader
            if steps > 1 and reader.kind in _MOVEMENT | {"ADD", "SELECT", "SELECT_V2"}:
                yield from _readers(graph, reader, steps - 1)


def _normalising(graph: Graph) -> set[int]:
    """Operators that a normalisation layer is made of. Its variance spans more orders than int8 has steps."""
    found: set[int] = set()
    for op in graph.operators:
        if op.kind in ("RSQRT", "SQRT"):
            found |= {reader.index for reader in _arithmetic(graph, op, 3)}
            found |= set(_behind(graph, op, 4))
    return found


def _arithmetic(graph: Graph, op: Operator, steps: int) -> Iterator[Operator]:
    for index in (index for tensor in op.outputs for index in graph.readers.get(tensor, ())):
        reader = graph.operators[index]
        if reader.kind in _ELEMENTWISE | {"DIV"}:
            yield reader
            if steps > 1:
                yield from _arithmetic(graph, reader, steps - 1)


def _behind(graph: Graph, op: Operator, steps: int) -> Iterator[int]:
    """The way back from the root of a variance to the mean."""
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
                yield from _behind(graph, writer, steps - 1)


def _grouped(graph: Graph, op: Operator, weight: int) -> bool:
    """Whether a convolution reads its channels in groups, which no kernel with dynamic ranges does."""
    read = graph.main.tensors[op.inputs[0]]
    return op.kind == "CONV_2D" and int(read.shape[-1]) != int(graph.main.tensors[weight].shape[-1])


def _unit(graph: Graph, op: Operator, pays: bool) -> Unit:
    weight = graph.weight(op)
    if op.kind == "BATCH_MATMUL" and weight is None:
        pays = False
    granularities = GRANULARITIES if weight is not None and op.kind in _CHANNELS else ("per_tensor",)
    int8 = tuple(OpConfig(INT8, c, g, "asym") for g, c in product(granularities, CALIBRATIONS))
    if weight is not None and op.kind in _DYNAMIC and not _grouped(graph, op, weight):
        int8 += tuple(OpConfig(INT8, mode="dynamic", granularity=g) for g in GRANULARITIES)
    choices = (*int8, FLOAT) if pays else (FLOAT, *int8)
    nodes = tuple(graph.tensor_name(op.outputs[0]).split(";"))
    return Unit(Op(graph.names[op.index], op.kind, nodes, choices), op, weight)


# Their bodies are other graphs of the file, in which no op is looked for.
_BODIES = {"CALL", "CALL_ONCE", "IF", "WHILE"}


def unquantizable_operators(graph: Graph, units: Iterable[Unit]) -> dict[int, str]:
    """The kind of each such operator, by its index."""
    taken = {unit.operator.index for unit in units}
    return {
        op.index: op.kind
        for op in graph.operators
        if op.index not in taken
        and (op.kind in _BODIES or op.kind.startswith("CUSTOM") or (op.kind not in STILL and activations(graph, op)))
    }


def unquantizable(graph: Graph, units: Iterable[Unit]) -> list[Unquantizable]:
    """How many there are of each kind, in graph order."""
    counts = Counter(unquantizable_operators(graph, units).values())
    return [Unquantizable(kind, count) for kind, count in counts.items()]
