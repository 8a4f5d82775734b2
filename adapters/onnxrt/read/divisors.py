"""What can divide the channels of a tensor at no cost: constants of what makes it, behind ops that let factors pass.

A positive factor of each channel passes through Relu and LeakyRelu, through pools, and through products with
another tensor or a constant. It does not pass through a Clip with an upper bound, which would have to be another one
for each channel, nor through anything that mixes channels.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import NamedTuple

from onnx import NodeProto

from quaver.adapters.onnxrt.read.carriers import bounds, carried, is_pool
from quaver.adapters.onnxrt.read.channelwise import scale_and_shift
from quaver.adapters.onnxrt.read.graph import Graph, attribute, integer
from quaver.adapters.onnxrt.read.units import Unit

_WEIGHTY = ("Conv", "Gemm", "MatMul")
# Factors are taken back through so many nodes at most: it is looked at from each op that reads.
_FAR = 16
# What lets factors pass wherever channels lie, and what does where they lie on axis 1.
_ELEMENTWISE = {"Relu", "LeakyRelu"}
_GLOBAL_POOLS = {"GlobalAveragePool", "GlobalMaxPool"}
_POOLS = {"MaxPool", "AveragePool"} | _GLOBAL_POOLS


class DividedConstant(NamedTuple):
    """A constant of a float node that takes factors.

    Attributes:
        node: its index.
        slot: which of its inputs it is.
        trailing: how many axes of it lie behind that of channels.
        multiplied: whether it is multiplied by the factors instead, as one that is divided by.
    """

    node: int
    slot: int
    trailing: int
    multiplied: bool = False


class Divisor(NamedTuple):
    """Where factors of a tensor's channels can go.

    Attributes:
        tensors: all that are divided then, from the one in question backwards, and the axis of channels in each.
        constants: of float nodes, that take the factors.
        unit: the op whose weight and bias take them, if one does.
    """

    tensors: Mapping[str, int]
    constants: tuple[DividedConstant, ...]
    unit: Unit | None = None


class _Way(NamedTuple):
    """A tensor on the way back: its channels lie on `axis`, counted from the front, of `rank`."""

    name: str
    axis: int
    rank: int


# A tensor to be divided in the place of what is made of it, and the constants that must be divided with it.
_Step = tuple[_Way, tuple[DividedConstant, ...]]


class DivisorFinder:
    """Finds what can divide tensors of one graph."""

    def __init__(self, graph: Graph, unit_of: Mapping[int, Unit], pinned: Set[str]) -> None:
        self._graph, self._unit_of, self._pinned = graph, unit_of, pinned

    def find(self, name: str, axis: int, channels: int, readers: Set[int]) -> Divisor | None:
        """What can divide a tensor that these nodes read; None if nothing can, or others read it too."""
        rank = self._graph.ranks.get(name)
        if rank is None or set(self._graph.consumers.get(name, ())) != set(readers):
            return None
        return self._back(_Way(name, axis % rank, rank), channels, _FAR)

    def _back(self, way: _Way, channels: int, far: int) -> Divisor | None:
        """The same from a tensor that nobody else reads, through so many nodes."""
        index = self._graph.producers.get(way.name)
        if index is None or way.name in self._pinned or not far:
            return None
        node, unit = self._graph.nodes[index], self._unit_of.get(index)
        if node.domain not in ("", "ai.onnx"):
            return None
        if unit is not None and unit.weight is not None:
            return self._op(way, unit, channels)
        ends = self._ends(way, index, node, channels) if unit is None else None
        if ends is not None:
            return Divisor({way.name: way.axis}, ends)
        for before, constants in self._steps(way, index, node, channels):
            found = self._back(before, channels, far - 1) if self._graph.only_reader(before.name) is node else None
            if found is not None:
                tensors = {way.name: way.axis, **found.tensors}
                return Divisor(tensors, (*constants, *found.constants), found.unit)
        return None

    def _op(self, way: _Way, unit: Unit, channels: int) -> Divisor | None:
        """An op with a weight, if its output channels are those of the tensor."""
        graph, anchor = self._graph, self._graph.nodes[unit.anchor]
        if way.name != unit.output or anchor.op_type not in _WEIGHTY or unit.weight is None:
            return None
        if way.axis != (1 if anchor.op_type == "Conv" else way.rank - 1):
            return None
        if unit.axis is None or graph.constants[unit.weight].shape[unit.axis] != channels:
            return None
        clips = [graph.nodes[index] for index in unit.nodes if graph.nodes[index].op_type == "Clip"]
        if any(bounds(graph, clip)[1] is not None for clip in clips):
            return None
        return Divisor({way.name: way.axis}, (), unit)

    def _ends(self, way: _Way, index: int, node: NodeProto, channels: int) -> tuple[DividedConstant, ...] | None:
        """The constants of a node that can take the factors by themselves."""
        graph = self._graph
        if node.op_type in ("LayerNormalization", "BatchNormalization") and len(node.output) == 1:
            layer = node.op_type == "LayerNormalization"
            axis = integer(node, "axis", -1) % way.rank if layer else 1
            parts = [graph.constants.get(name) for name in node.input[1:3]]
            if axis != way.axis or (layer and axis != way.rank - 1) or integer(node, "training_mode", 0):
                return None
            if all(part is not None and part.shape == (channels,) for part in parts):
                return tuple(DividedConstant(index, 1 + at, 0) for at in range(len(parts)))
        if node.op_type in ("Mul", "Div") and (source := self._other(node)) is not None:
            return self._each(way, index, node, source, channels)
        return None

    def _each(
        self, way: _Way, index: int, node: NodeProto, source: str, channels: int
    ) -> tuple[DividedConstant, ...] | None:
        """The constant of a Mul, Div or Add that has a value for each channel."""
        graph, slot = self._graph, 1 - list(node.input).index(source)
        found = scale_and_shift(graph, node, source, channels, way.rank, way.axis)
        if found is None or graph.constants[node.input[slot]].size != channels:
            return None
        return (DividedConstant(index, slot, way.rank - 1 - way.axis, node.op_type == "Div"),)

    def _steps(self, way: _Way, index: int, node: NodeProto, channels: int) -> list[_Step]:
        """The tensors that could be divided in the place of what a node makes, and constants that must be as well."""
        graph = self._graph
        same: list[_Step] = [(way._replace(name=name), ()) for name in node.input]
        if node.op_type in _ELEMENTWISE:
            return same[:1]
        if node.op_type == "Transpose":
            order = attribute(node, "perm")
            before = way.rank - 1 - way.axis if order is None else order.ints[way.axis]
            return [(way._replace(name=node.input[0], axis=int(before)), ())]
        if node.op_type == "Pad" and carried(graph, node) is not None:
            return same[:1]
        if node.op_type in _POOLS and way.axis == 1 and len([name for name in node.output if name]) == 1:
            return same[:1]
        if node.op_type == "ReduceMean" and way.axis == 1 and is_pool(graph, node):
            return [(_Way(node.input[0], 1, 4), ())]
        if node.op_type in ("Flatten", "Reshape", "Squeeze"):
            return self._flattened(way, node, channels)
        if node.op_type == "Mul" and len(set(node.input)) == 2 and all(self._is_whole(way, one) for one in node.input):
            return same
        if node.op_type in ("Mul", "Add") and (source := self._other(node)) is not None:
            if node.op_type == "Mul":  # by one number: by one for each channel it would take the factors
                single = graph.constants[node.input[1 - list(node.input).index(source)]].size == 1
                return [(way._replace(name=source), ())] if single and self._is_whole(way, source) else []
            constants = self._each(way, index, node, source, channels) if index not in self._unit_of else None
            return [] if constants is None else [(way._replace(name=source), constants)]
        return []

    def _flattened(self, way: _Way, node: NodeProto, channels: int) -> list[_Step]:
        """An image of one point that becomes a row: its channels become columns."""
        source = self._graph.producers.get(node.input[0])
        if source is None or way.rank != 2 or way.axis != 1:
            return []
        before = self._graph.nodes[source]
        points = before.op_type in _GLOBAL_POOLS or (before.op_type == "ReduceMean" and is_pool(self._graph, before))
        rank = self._graph.ranks.get(node.input[0])
        if not points or rank is None or rank < 3:
            return []
        if node.op_type == "Reshape":
            shape = self._graph.constants.get(node.input[1])
            if shape is None or shape.size != 2 or int(shape.reshape(-1)[1]) not in (channels, -1):
                return []
            if int(shape.reshape(-1)[1]) == -1 and int(shape.reshape(-1)[0]) != 0:
                return []
        elif node.op_type == "Flatten" and integer(node, "axis", 1) != 1:
            return []
        return [(_Way(node.input[0], 1, rank), ())]

    def _other(self, node: NodeProto) -> str | None:
        """What a node reads besides one constant."""
        others = [name for name in node.input if name not in self._graph.constants]
        return others[0] if len(others) == 1 and len(node.input) == 2 else None

    def _is_whole(self, way: _Way, name: str) -> bool:
        """Whether a factor of a product is a tensor with all channels of it, so that nothing is spread over others."""
        return name not in self._graph.constants and self._graph.ranks.get(name) == way.rank
