"""The same point of the computation in the float model and in a quantized file.

A file may do in one operator what are several nodes in the float model, and may leave out a Relu that quantizing does
anyway. So an op's output is looked for where the op ends, behind its bias and its activation; where the file has only a
point before or behind that, the float model is looked at there, too.
"""

from __future__ import annotations

from typing import NamedTuple

from onnx import NodeProto

from quaver.adapters.onnxrt.inspect.quantized_file import QuantizedFile
from quaver.adapters.onnxrt.load.graph import Graph
from quaver.adapters.onnxrt.ops.units import Unit, absorbs
from quaver.affine import QuantizationParameters


class Point(NamedTuple):
    """One point: the tensor of the float model, and the float tensor in which readers see it in the file."""

    ours: str
    theirs: str


def point_of(graph: Graph, unit: Unit, file: QuantizedFile) -> Point | None:
    """Where an op ends in both models; None if that cannot be found in the file."""
    behind = _left_out(graph, unit.output, file)
    found = file.known_as(unit.output, quantized=behind is None)
    if found is not None:
        return Point(unit.output, found)
    if (unit.is_embedding or unit.is_passthrough or unit.gate) and (
        real := file.made_real(file.namesake(unit))
    ) is not None:
        return Point(unit.output, real)
    if behind is not None and (found := file.known_as(behind)) is not None:
        return Point(behind, found)
    return _within(graph, unit, file)


def node_point(node: NodeProto, file: QuantizedFile) -> Point | None:
    """Where a node that is part of no op ends in both models."""
    ours = str(node.output[0])
    theirs = file.of_name(node.name)
    real = None if theirs is None else file.in_floats(theirs)
    if real is not None:
        return Point(ours, real)
    found = file.known_as(ours)
    return None if found is None else Point(ours, found)


def rounded_within(graph: Graph, unit: Unit, file: QuantizedFile) -> dict[str, QuantizationParameters]:
    """The tensors between the nodes of an op that the file quantizes: between a product and its bias, for example."""
    found = {}
    for index in unit.nodes[:-1]:
        node = graph.nodes[index]
        point = _at(graph, unit, file, node)
        parameters = None if point is None else file.parameters(point.theirs)
        if point is not None and point.ours == node.output[0] and parameters is not None:
            found[point.ours] = parameters
    return found


def _within(graph: Graph, unit: Unit, file: QuantizedFile) -> Point | None:
    """A point found by the nodes of an op, from the last one on."""
    for index in reversed(unit.nodes):
        node = graph.nodes[index]
        point = _at(graph, unit, file, node)
        if point is not None:
            return point
    return None


def _at(graph: Graph, unit: Unit, file: QuantizedFile, node: NodeProto) -> Point | None:
    """Where one node of an op ends; what the file leaves out behind it is part of it."""
    theirs = file.of_name(node.name)
    ours = None if theirs is None else _written(graph, unit, theirs)
    if theirs is not None and ours is not None and file.writes_integers(theirs):
        while (behind := _left_out(graph, ours, file)) is not None:
            ours = behind
        return Point(ours, file.dequantized(theirs))
    found = file.known_as(node.output[0])
    if found is not None:
        return Point(node.output[0], found)
    if theirs is not None and ours is not None and theirs.op_type == node.op_type:
        return Point(node.output[0], str(theirs.output[0]))
    return None


def _written(graph: Graph, unit: Unit, theirs: NodeProto) -> str | None:
    """The float tensor that a node of the file writes, going by names; None if no node of the op does.

    A convolution with a BatchNormalization left behind it writes something else than ours, in which that is folded.
    """
    behind = graph.only_reader(unit.output)
    names = [graph.nodes[index].output[0] for index in unit.nodes] + ([] if behind is None else [behind.output[0]])
    return max((name for name in names if theirs.output[0].startswith(name)), key=len, default=None)


def _left_out(graph: Graph, tensor: str, file: QuantizedFile) -> str | None:
    """What a Relu or Clip makes of a tensor that it alone reads, if the file leaves it to quantizing; else None."""
    reader = graph.only_reader(tensor)
    if reader is None or not absorbs(graph, reader) or file.of_name(reader.name) is not None:
        return None
    return str(reader.output[0])
