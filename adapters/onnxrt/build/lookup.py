"""Rows of a table in 8 bits: looked up in integers, and made real afterwards, which is exact and moves fewer bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from onnx import TensorProto

from quaver.adapters.onnxrt.build import four_bits, wire
from quaver.adapters.onnxrt.build.weights import Entry
from quaver.adapters.onnxrt.read.graph import integer
from quaver.adapters.onnxrt.read.units import Unit
from quaver.errors import BuildError
from quaver.ops import PER_BLOCK, OpConfig

if TYPE_CHECKING:
    from quaver.adapters.onnxrt.build.assembler import Assembler

# What the nodes are called that make rows real; the one that looks them up keeps its name.
PARTS = ("scales of rows", "rows as float", "rows in integers")


class LookupParts(NamedTuple):
    """A lookup as parts of a graph: its nodes, its constants by name, whether it takes ONNX Runtime's own operators."""

    nodes: bytes
    entries: tuple[tuple[str, Entry], ...]
    foreign: bool = False


def look_up(assembler: Assembler, unit: Unit, pick: OpConfig, target: str, mark: str = "") -> LookupParts:
    """A unit that looks rows up. With one scale it writes uint8 to `target`; with more than one, real numbers.

    No kernel dequantizes rows by scales of their own, but the scales can be looked up as well, and multiplied with.
    """
    if pick.repairs:
        raise BuildError(f"repair {pick.repairs[0]!r} cannot be done to op {unit.op.name!r}, which is a {unit.op.kind}")
    assert unit.weight is not None
    store, node = assembler.store, assembler.graph.nodes[unit.anchor]
    where, axis = str(node.input[1]), integer(node, "axis", 0)
    name = node.name + mark
    if pick.granularity == PER_BLOCK:
        made, weight = four_bits.lookup(assembler, unit, where, target, name)
        return LookupParts(made, weight.entries, foreign=True)
    if unit.hands_on_integers(pick):
        table, entry = store.table(unit.weight)
        return LookupParts(wire.node("Gather", [table, where], [target], name, axis=axis), ((table, entry),))
    assert unit.axis is not None
    by_row = store.int8(unit.weight, unit.axis)
    rows, scales = store.row_scales(unit.weight, unit.axis)
    scale, real, integers = (assembler.label(unit.output, part) + mark for part in PARTS)
    nodes = (
        wire.node("Gather", [by_row.integers, where], [integers], name, axis=axis)
        + wire.node("Gather", [rows, where], [scale], scale, axis=axis)
        + wire.node("Cast", [integers], [real], real, to=TensorProto.FLOAT)
        + wire.node("Mul", [real, scale], [target], assembler.label(unit.output, "rows") + mark)
    )
    return LookupParts(nodes, ((by_row.integers, by_row.entries[0]), (rows, scales)))
