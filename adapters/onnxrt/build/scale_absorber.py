"""Scale absorbers: what can divide the channels of a tensor at no cost at run time.

Rescaling an op divides the channels of what it reads. If the nodes that make the tensor have constants which can take
the factors, nothing is computed in addition. `AbsorberFinder` goes back from the tensor through nodes that factors
pass, until it meets an op with a weight or a node with a constant for each channel.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import NamedTuple

from onnx import NodeProto

from quaver.adapters.onnxrt.load.graph import Graph, attribute, integer
from quaver.adapters.onnxrt.ops.passthrough import bounds, is_global_average_pool, passed_through
from quaver.adapters.onnxrt.ops.unit import Unit
from quaver.adapters.onnxrt.optimize.layers import scale_and_shift

_WEIGHT_KINDS = ("Conv", "Gemm", "MatMul")
# Judgement: factors are taken back through at most this many nodes, because each int8 reader starts a search.
_MAX_NODES = 16
# Factors pass these wherever channels lie, and pools where channels lie on axis 1.
_ELEMENTWISE = {"Relu", "LeakyRelu"}
_GLOBAL_POOLS = {"GlobalAveragePool", "GlobalMaxPool"}
_POOLS = {"MaxPool", "AveragePool"} | _GLOBAL_POOLS


class ScaledConstant(NamedTuple):
    """A constant of a float node that takes factors.

    Attributes:
        node: index of the node.
        slot: which of its inputs the constant is.
        trailing: how many axes of the constant lie behind its channel axis.
        is_multiplied: True if it is multiplied by the factors instead of divided, because the node divides by it.
    """

    node: int
    slot: int
    trailing: int
    is_multiplied: bool = False


class ScaleAbsorber(NamedTuple):
    """Where the factors of a tensor's channels can go.

    Attributes:
        tensors: all tensors that are divided then, from the one in question backwards, and their channel axes.
        constants: constants of float nodes that take the factors.
        unit: the op whose weight and bias take them, if one does.
    """

    tensors: Mapping[str, int]
    constants: tuple[ScaledConstant, ...]
    unit: Unit | None = None


class _ChannelTensor(NamedTuple):
    """A tensor on the way back: `channels` channels on `axis`, counted from the front, of `rank` axes."""

    name: str
    axis: int
    rank: int
    channels: int


# A tensor that can be divided in place of the output of a node, and the constants that must be divided with it.
_Step = tuple[_ChannelTensor, tuple[ScaledConstant, ...]]


class AbsorberFinder:
    """Finds the scale absorbers of tensors of one graph."""

    def __init__(self, graph: Graph, unit_of: Mapping[int, Unit], pinned: Set[str]) -> None:
        self._graph, self._unit_of, self._pinned = graph, unit_of, pinned

    def find(self, name: str, axis: int, channels: int, readers: Set[int]) -> ScaleAbsorber | None:
        """Return what can divide a tensor that these nodes read.

        None if nothing can, or if other nodes read the tensor too.
        """
        rank = self._graph.ranks.get(name)
        if rank is None or set(self._graph.consumers.get(name, ())) != set(readers):
            return None
        return self._search(_ChannelTensor(name, axis % rank, rank, channels), _MAX_NODES)

    def _search(self, tensor: _ChannelTensor, nodes_left: int) -> ScaleAbsorber | None:
        index = self._graph.producers.get(tensor.name)
        if index is None or tensor.name in self._pinned or not nodes_left:
            return None
        node, unit = self._graph.nodes[index], self._unit_of.get(index)
        if node.domain not in ("", "ai.onnx"):
            return None
        if unit is not None and unit.weight is not None:
            return self._op_with_weight(tensor, unit)
        constants = self._absorbing_constants(tensor, index, node) if unit is None else None
        if constants is not None:
            return ScaleAbsorber({tensor.name: tensor.axis}, constants)
        for source, more_constants in self._steps(tensor, index, node):
            is_only_reader = self._graph.only_reader(source.name) is node
            absorber = self._search(source, nodes_left - 1) if is_only_reader else None
            if absorber is not None:
                tensors = {tensor.name: tensor.axis, **absorber.tensors}
                return ScaleAbsorber(tensors, (*more_constants, *absorber.constants), absorber.unit)
        return None

    def _op_with_weight(self, tensor: _ChannelTensor, unit: Unit) -> ScaleAbsorber | None:
        """Return an op as absorber if its output channels are those of the tensor, and no upper bound clips them."""
        graph, anchor = self._graph, self._graph.nodes[unit.anchor]
        if tensor.name != unit.output or anchor.op_type not in _WEIGHT_KINDS or unit.weight is None:
            return None
        if tensor.axis != (1 if anchor.op_type == "Conv" else tensor.rank - 1):
            return None
        if unit.axis is None or graph.constants[unit.weight].shape[unit.axis] != tensor.channels:
            return None
        clips = [graph.nodes[index] for index in unit.nodes if graph.nodes[index].op_type == "Clip"]
        if any(bounds(graph, clip)[1] is not None for clip in clips):
            return None
        return ScaleAbsorber({tensor.name: tensor.axis}, (), unit)

    def _absorbing_constants(
        self, tensor: _ChannelTensor, index: int, node: NodeProto
    ) -> tuple[ScaledConstant, ...] | None:
        """Return the constants of a node that take the factors alone: scale and bias of a norm, or a factor."""
        graph = self._graph
        if node.op_type in ("LayerNormalization", "BatchNormalization") and len(node.output) == 1:
            is_layer_norm = node.op_type == "LayerNormalization"
            axis = integer(node, "axis", -1) % tensor.rank if is_layer_norm else 1
            arrays = [graph.constants.get(name) for name in node.input[1:3]]
            is_over_last_axis = not is_layer_norm or axis == tensor.rank - 1
            if axis != tensor.axis or not is_over_last_axis or integer(node, "training_mode", 0):
                return None
            if all(array is not None and array.shape == (tensor.channels,) for array in arrays):
                return tuple(ScaledConstant(index, 1 + at, 0) for at in range(len(arrays)))
        if node.op_type in ("Mul", "Div") and (source := self._activation_beside_constant(node)) is not None:
            return self._constant_per_channel(tensor, index, node, source)
        return None

    def _constant_per_channel(
        self, tensor: _ChannelTensor, index: int, node: NodeProto, source: str
    ) -> tuple[ScaledConstant, ...] | None:
        """Return the constant of a Mul, Div or Add if it has a value for each channel."""
        graph, slot = self._graph, 1 - list(node.input).index(source)
        affine = scale_and_shift(graph, node, source, tensor.channels, tensor.rank, tensor.axis)
        if affine is None or graph.constants[node.input[slot]].size != tensor.channels:
            return None
        return (ScaledConstant(index, slot, tensor.rank - 1 - tensor.axis, node.op_type == "Div"),)

    def _steps(self, tensor: _ChannelTensor, index: int, node: NodeProto) -> list[_Step]:
        """Return the tensors that could be divided in place of a node's output, and what must be divided with them."""
        if self._keeps_channels(tensor, node):
            return [(tensor._replace(name=node.input[0]), ())]
        if node.op_type == "Transpose":
            order = attribute(node, "perm")
            axis = tensor.rank - 1 - tensor.axis if order is None else order.ints[tensor.axis]
            return [(tensor._replace(name=node.input[0], axis=int(axis)), ())]
        if node.op_type == "ReduceMean" and tensor.axis == 1 and is_global_average_pool(self._graph, node):
            return [(tensor._replace(name=node.input[0], axis=1, rank=4), ())]
        if node.op_type in ("Flatten", "Reshape", "Squeeze"):
            return self._steps_of_flattening(tensor, node)
        if node.op_type in ("Mul", "Add"):
            return self._steps_of_arithmetic(tensor, index, node)
        return []

    def _keeps_channels(self, tensor: _ChannelTensor, node: NodeProto) -> bool:
        """Return True if dividing the input of a node divides its output, channel by channel."""
        if node.op_type in _ELEMENTWISE:
            return True
        if node.op_type == "Pad":
            return passed_through(self._graph, node) is not None
        return node.op_type in _POOLS and tensor.axis == 1 and len([name for name in node.output if name]) == 1

    def _steps_of_arithmetic(self, tensor: _ChannelTensor, index: int, node: NodeProto) -> list[_Step]:
        """Return the steps through a Mul or Add: into one factor, or into a summand together with a constant."""
        graph = self._graph
        if node.op_type == "Mul":
            if len(set(node.input)) == 2 and all(self._has_all_axes(tensor, name) for name in node.input):
                return [(tensor._replace(name=name), ()) for name in node.input]
            source = self._activation_beside_constant(node)
            if source is None or not self._has_all_axes(tensor, source):
                return []
            # A factor for each channel would have taken the factors before.
            is_one_number = graph.constants[node.input[1 - list(node.input).index(source)]].size == 1
            return [(tensor._replace(name=source), ())] if is_one_number else []
        source = self._activation_beside_constant(node)
        if source is None or index in self._unit_of:
            return []
        constants = self._constant_per_channel(tensor, index, node, source)
        return [] if constants is None else [(tensor._replace(name=source), constants)]

    def _steps_of_flattening(self, tensor: _ChannelTensor, node: NodeProto) -> list[_Step]:
        """Return the step through a node that makes a row of an image of one point: its channels become columns."""
        graph, producer = self._graph, self._graph.producers.get(node.input[0])
        if producer is None or tensor.rank != 2 or tensor.axis != 1:
            return []
        pool, rank = graph.nodes[producer], graph.ranks.get(node.input[0])
        is_pooled_mean = pool.op_type == "ReduceMean" and is_global_average_pool(graph, pool)
        if not (pool.op_type in _GLOBAL_POOLS or is_pooled_mean) or rank is None or rank < 3:
            return []
        if node.op_type == "Reshape":
            shape = graph.constants.get(node.input[1])
            if shape is None or shape.size != 2:
                return []
            rows, columns = (int(size) for size in shape.reshape(-1))
            if columns not in (tensor.channels, -1) or (columns == -1 and rows != 0):
                return []
        elif node.op_type == "Flatten" and integer(node, "axis", 1) != 1:
            return []
        return [(tensor._replace(name=node.input[0], axis=1, rank=rank), ())]

    def _activation_beside_constant(self, node: NodeProto) -> str | None:
        """Return what a node with two inputs reads besides one constant."""
        activations = [name for name in node.input if name not in self._graph.constants]
        return activations[0] if len(activations) == 1 and len(node.input) == 2 else None

    def _has_all_axes(self, tensor: _ChannelTensor, name: str) -> bool:
        """Return True for a factor with all axes of the product, which is not broadcast."""
        return name not in self._graph.constants and self._graph.ranks.get(name) == tensor.rank
