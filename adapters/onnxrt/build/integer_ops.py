"""Ops that work on integers directly: passthrough ops, clipped HardSigmoids and lookups in int8 tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from onnx import AttributeProto, NodeProto, TensorProto

from quaver.adapters.onnxrt.build import blocks, protobuf
from quaver.adapters.onnxrt.build.weight_store import Entry
from quaver.adapters.onnxrt.load.graph import integer
from quaver.adapters.onnxrt.ops.passthrough import BOUNDED, bounds
from quaver.adapters.onnxrt.ops.unit import Unit
from quaver.affine import QuantizationParameters
from quaver.errors import BuildError
from quaver.ops import OpConfig
from quaver.types import Array

if TYPE_CHECKING:
    from quaver.adapters.onnxrt.build.builder import Builder


# Since this opset ReduceMax takes its axes as an input (ONNX operator specification).
_AXES_AS_INPUT = 18


class PassthroughParts(NamedTuple):
    """A passthrough op on integers: its node, the constants it brings along, and the names of others that it reads."""

    node: bytes
    constants: bytes
    reads: tuple[str, ...]


def passthrough_parts(
    builder: Builder, unit: Unit, parameters: QuantizationParameters, source: str, target: str, mark: str = ""
) -> PassthroughParts:
    """Return the node that makes the integers `target` of the integers `source`; both have these parameters."""
    graph, node = builder.graph, NodeProto()
    node.CopyFrom(graph.nodes[unit.anchor])
    new_constants: dict[str, Array] = {}

    def constant(part: str, value: Array) -> str:
        name = builder.label(unit.output, part) + mark
        new_constants[name] = value
        return name

    inputs = [source, *node.input[1:]]
    if node.op_type in BOUNDED:
        limits = zip(("low", "high"), bounds(graph, node), strict=True)
        inputs = [source, *("" if at is None else constant(part, _level(at, parameters)) for part, at in limits)]
        node = NodeProto(op_type="Clip", name=node.name)
    elif node.op_type == "GlobalMaxPool":
        axes = list(range(2, graph.ranks[unit.activations[0]]))
        as_input = graph.opset >= _AXES_AS_INPUT
        inputs = [source, *([constant("axes", np.array(axes))] if as_input else [])]
        node = NodeProto(op_type="ReduceMax", name=node.name)
        if not as_input:
            node.attribute.add(name="axes", ints=axes, type=AttributeProto.INTS)
    elif node.op_type == "Pad":
        inputs = [*inputs[:2], constant("fill", parameters.zero_point), *inputs[3:]]
    del node.input[:], node.output[:]
    node.input.extend(inputs)
    node.output.append(target)
    node.name += mark
    return PassthroughParts(
        protobuf.block(protobuf.GRAPH_NODE, node.SerializeToString(deterministic=True)),
        b"".join(protobuf.tensor(name, value) for name, value in new_constants.items()),
        tuple(name for name in inputs[1:] if name and name not in new_constants),
    )


def _level(bound: float, parameters: QuantizationParameters) -> Array:
    """Return the integer of a bound, rounded as QuantizeLinear rounds."""
    level = np.rint(np.float32(bound) / parameters.scale) + np.float32(parameters.zero_point)
    return np.asarray(np.clip(level, 0, 255), np.uint8)


# Judgement: with fewer steps between the ends of a HardSigmoid, half a step would be a visible error.
STEPS = 32


class ClippedIntegers(NamedTuple):
    """Integers that are clipped from `low` to `high`, and the parameters that give them their meaning after that."""

    low: NDArray[np.uint8]
    high: NDArray[np.uint8]
    parameters: QuantizationParameters


def clipped_integers(reads: QuantizationParameters, slope: float, shift: float) -> ClippedIntegers | None:
    """Return how clipping integers computes a HardSigmoid; None if they have too few steps for its result.

    Args:
        reads: scale and zero point of the integers.
        slope: the slope of the HardSigmoid.
        shift: its shift.
    """
    step, zero = float(reads.scale), int(reads.zero_point)
    low, high = round(zero - shift / (slope * step)), round(zero + (1 - shift) / (slope * step))
    if not 0 <= low <= 255 or high - low < STEPS:
        return None
    level = np.asarray(low, np.uint8)
    parameters = QuantizationParameters(np.asarray(1 / (high - low), np.float32), level)
    return ClippedIntegers(level, np.asarray(min(high, 255), np.uint8), parameters)


def requantizing_parameters(slope: float, shift: float) -> QuantizationParameters:
    """Return the parameters that quantize x so that the integers are HardSigmoid(x) in steps of 1/255."""
    return QuantizationParameters(np.asarray(1 / (255 * slope), np.float32), np.asarray(round(255 * shift), np.uint8))


# Ends of the names of nodes that dequantize rows; the node that looks them up keeps its name.
PARTS = ("scales of rows", "rows as float", "rows in integers")


class EmbeddingParts(NamedTuple):
    """A lookup as parts of a graph.

    Attributes:
        nodes: its nodes, in order.
        entries: its constants, by name.
        uses_ort_domain: True if it needs ONNX Runtime's own operators.
    """

    nodes: bytes
    entries: tuple[tuple[str, Entry], ...]
    uses_ort_domain: bool = False


def embedding_parts(builder: Builder, unit: Unit, choice: OpConfig, target: str, mark: str = "") -> EmbeddingParts:
    """Return a unit that looks up rows: uint8 in `target` if the table has one scale, else float32.

    No kernel dequantizes rows by scales of their own. The scales are therefore looked up as well, and multiplied.
    """
    if choice.repairs and not choice.block_size:
        raise BuildError(
            f"repair {choice.repairs[0]!r} cannot be applied to op {unit.op.name!r}, which is a {unit.op.kind}"
        )
    assert unit.weight is not None
    store, node = builder.store, builder.graph.nodes[unit.anchor]
    row_numbers, axis = str(node.input[1]), integer(node, "axis", 0)
    name = node.name + mark
    if choice.block_size:
        lookup_node, weight = blocks.lookup(builder, unit, choice, row_numbers, target, name)
        return EmbeddingParts(lookup_node, weight.entries, uses_ort_domain=True)
    if unit.writes_integers_as(choice):
        table, entry = store.table(unit.weight)
        return EmbeddingParts(
            protobuf.node("Gather", [table, row_numbers], [target], name, axis=axis), ((table, entry),)
        )
    assert unit.axis is not None
    by_row = store.int8(unit.weight, unit.axis)
    rows, scales = store.row_scales(unit.weight, unit.axis)
    scale, real, integers = (builder.label(unit.output, part) + mark for part in PARTS)
    nodes = (
        protobuf.node("Gather", [by_row.integers, row_numbers], [integers], name, axis=axis)
        + protobuf.node("Gather", [rows, row_numbers], [scale], scale, axis=axis)
        + protobuf.node("Cast", [integers], [real], real, to=TensorProto.FLOAT)
        + protobuf.node("Mul", [real, scale], [target], builder.label(unit.output, "rows") + mark)
    )
    return EmbeddingParts(nodes, ((by_row.integers, by_row.entries[0]), (rows, scales)))
