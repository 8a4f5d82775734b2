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
from quaver.adapters.onnxrt.ops.units import Unit, quantization_absorbs
from quaver.affine import QuantizationParameters


class MatchedTensor(NamedTuple):
    """One point: the tensor of the float model, and the float tensor in which readers see it in the file."""

    float_tensor: str
    file_tensor: str


def match_op(graph: Graph, unit: Unit, file: QuantizedFile) -> MatchedTensor | None:
    """Where an op ends in both models; None if that cannot be found in the file."""
    behind = _left_out(graph, unit.output, file)
    found = file.float_view_named(unit.output, quantized=behind is None)
    if found is not None:
        return MatchedTensor(unit.output, found)
    if (unit.is_embedding or unit.is_passthrough or unit.hard_sigmoid) and (
        real := file.dequantized_result(file.node_of(unit))
    ) is not None:
        return MatchedTensor(unit.output, real)
    if behind is not None and (found := file.float_view_named(behind)) is not None:
        return MatchedTensor(behind, found)
    return _within(graph, unit, file)


def match_node(node: NodeProto, file: QuantizedFile) -> MatchedTensor | None:
    """Where a node that is part of no op ends in both models."""
    float_tensor = str(node.output[0])
    file_tensor = file.node_named(node.name)
    real = None if file_tensor is None else file.in_floats(file_tensor)
    if real is not None:
        return MatchedTensor(float_tensor, real)
    found = file.float_view_named(float_tensor)
    return None if found is None else MatchedTensor(float_tensor, found)


def quantized_inside(graph: Graph, unit: Unit, file: QuantizedFile) -> dict[str, QuantizationParameters]:
    """The tensors between the nodes of an op that the file quantizes: between a product and its bias, for example."""
    found = {}
    for index in unit.nodes[:-1]:
        node = graph.nodes[index]
        point = _at(graph, unit, file, node)
        parameters = None if point is None else file.parameters(point.file_tensor)
        if point is not None and point.float_tensor == node.output[0] and parameters is not None:
            found[point.float_tensor] = parameters
    return found


def _within(graph: Graph, unit: Unit, file: QuantizedFile) -> MatchedTensor | None:
    """A point found by the nodes of an op, from the last one on."""
    for index in reversed(unit.nodes):
        node = graph.nodes[index]
        point = _at(graph, unit, file, node)
        if point is not None:
            return point
    return None


def _at(graph: Graph, unit: Unit, file: QuantizedFile, node: NodeProto) -> MatchedTensor | None:
    """Where one node of an op ends; what the file leaves out behind it is part of it."""
    file_tensor = file.node_named(node.name)
    float_tensor = None if file_tensor is None else _written(graph, unit, file_tensor)
    if file_tensor is not None and float_tensor is not None and file.writes_integers(file_tensor):
        while (behind := _left_out(graph, float_tensor, file)) is not None:
            float_tensor = behind
        return MatchedTensor(float_tensor, file.dequantized(file_tensor))
    found = file.float_view_named(node.output[0])
    if found is not None:
        return MatchedTensor(node.output[0], found)
    if file_tensor is not None and float_tensor is not None and file_tensor.op_type == node.op_type:
        return MatchedTensor(node.output[0], str(file_tensor.output[0]))
    return None


def _written(graph: Graph, unit: Unit, file_tensor: NodeProto) -> str | None:
    """The float tensor that a node of the file writes, going by names; None if no node of the op does.

    A convolution with a BatchNormalization left behind it writes something else than ours, in which that is folded.
    """
    behind = graph.only_reader(unit.output)
    names = [graph.nodes[index].output[0] for index in unit.nodes] + ([] if behind is None else [behind.output[0]])
    return max((name for name in names if file_tensor.output[0].startswith(name)), key=len, default=None)


def _left_out(graph: Graph, tensor: str, file: QuantizedFile) -> str | None:
    """What a Relu or Clip makes of a tensor that it alone reads, if the file leaves it to quantizing; else None."""
    reader = graph.only_reader(tensor)
    if reader is None or not quantization_absorbs(graph, reader) or file.node_named(reader.name) is not None:
        return None
    return str(reader.output[0])
