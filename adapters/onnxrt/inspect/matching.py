"""Matching: find the tensor of a quantized file that corresponds to a tensor of the float model.

A file may do in one operator what are several nodes in the float model, and may leave out a Relu that quantizing does
anyway. So an op's output is looked for where the op ends, behind its bias and its activation. Where the file only has
a tensor before or behind that, the float model is compared there, too.
"""

from __future__ import annotations

from typing import NamedTuple

from onnx import NodeProto

from quaver.adapters.onnxrt.inspect.quantized_file import QuantizedFile
from quaver.adapters.onnxrt.load.graph import Graph
from quaver.adapters.onnxrt.ops.unit import Unit, quantization_absorbs
from quaver.affine import QuantizationParameters


class MatchedTensor(NamedTuple):
    """A tensor of the float model, and the float tensor of the file in which readers see the same values."""

    float_tensor: str
    file_tensor: str


def match_op(graph: Graph, unit: Unit, file: QuantizedFile) -> MatchedTensor | None:
    """Return where an op ends in both models; None if the file does not show it."""
    absorbed = _absorbed_output(graph, unit.output, file)
    file_name = file.float_view_named(unit.output, quantized=absorbed is None)
    if file_name is not None:
        return MatchedTensor(unit.output, file_name)
    if (unit.is_embedding or unit.is_passthrough or unit.hard_sigmoid) and (
        real := file.dequantized_result(file.node_of(unit))
    ) is not None:
        return MatchedTensor(unit.output, real)
    if absorbed is not None and (file_name := file.float_view_named(absorbed)) is not None:
        return MatchedTensor(absorbed, file_name)
    return _match_inside(graph, unit, file)


def match_node(node: NodeProto, file: QuantizedFile) -> MatchedTensor | None:
    """Return where a node that is part of no op ends in both models."""
    float_tensor = str(node.output[0])
    file_tensor = file.node_named(node.name)
    real = None if file_tensor is None else file.float_output(file_tensor)
    if real is not None:
        return MatchedTensor(float_tensor, real)
    file_name = file.float_view_named(float_tensor)
    return None if file_name is None else MatchedTensor(float_tensor, file_name)


def quantized_inside(graph: Graph, unit: Unit, file: QuantizedFile) -> dict[str, QuantizationParameters]:
    """Return the tensors inside an op that the file quantizes: between a product and its bias, for example."""
    inside = {}
    for index in unit.nodes[:-1]:
        node = graph.nodes[index]
        match = _match_at(graph, unit, file, node)
        parameters = None if match is None else file.parameters(match.file_tensor)
        if match is not None and match.float_tensor == node.output[0] and parameters is not None:
            inside[match.float_tensor] = parameters
    return inside


def _match_inside(graph: Graph, unit: Unit, file: QuantizedFile) -> MatchedTensor | None:
    """Match an op by one of its nodes, from the last one on."""
    for index in reversed(unit.nodes):
        node = graph.nodes[index]
        match = _match_at(graph, unit, file, node)
        if match is not None:
            return match
    return None


def _match_at(graph: Graph, unit: Unit, file: QuantizedFile, node: NodeProto) -> MatchedTensor | None:
    """Match one node of an op; what the file leaves out behind it is part of it."""
    file_tensor = file.node_named(node.name)
    float_tensor = None if file_tensor is None else _output_in_float_model(graph, unit, file_tensor)
    if file_tensor is not None and float_tensor is not None and file.writes_integers(file_tensor):
        while (absorbed := _absorbed_output(graph, float_tensor, file)) is not None:
            float_tensor = absorbed
        return MatchedTensor(float_tensor, file.dequantized_output(file_tensor))
    file_name = file.float_view_named(node.output[0])
    if file_name is not None:
        return MatchedTensor(node.output[0], file_name)
    if file_tensor is not None and float_tensor is not None and file_tensor.op_type == node.op_type:
        return MatchedTensor(node.output[0], str(file_tensor.output[0]))
    return None


def _output_in_float_model(graph: Graph, unit: Unit, file_tensor: NodeProto) -> str | None:
    """Return the float tensor that a node of the file writes, going by names; None if no node of the op writes it.

    A convolution with a BatchNormalization left behind it computes something else than the float model's, into which
    the
    normalization is folded.
    """
    behind = graph.only_reader(unit.output)
    names = [graph.nodes[index].output[0] for index in unit.nodes] + ([] if behind is None else [behind.output[0]])
    return max((name for name in names if file_tensor.output[0].startswith(name)), key=len, default=None)


def _absorbed_output(graph: Graph, tensor: str, file: QuantizedFile) -> str | None:
    """Return the output of a Relu or Clip that is the only reader of a tensor, if the file leaves it to quantizing."""
    reader = graph.only_reader(tensor)
    if reader is None or not quantization_absorbs(graph, reader) or file.node_named(reader.name) is not None:
        return None
    return str(reader.output[0])
