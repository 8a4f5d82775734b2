"""Replay: each op of a quantized file by itself, fed from the float model, with the scales and weights of the file."""

from __future__ import annotations

from collections.abc import Mapping

from onnx import NodeProto

from quaver.adapters.onnxrt.build import protobuf
from quaver.adapters.onnxrt.build.builder import Builder
from quaver.adapters.onnxrt.build.emitter import Emitter
from quaver.adapters.onnxrt.inspect.local_runs import CopyInputs, RecordedTensor, copy_unit, quantized, scale_entries
from quaver.adapters.onnxrt.inspect.matching import MatchedTensor, quantized_inside
from quaver.adapters.onnxrt.inspect.other_nodes import quantize_dequantize
from quaver.adapters.onnxrt.inspect.quantized_file import QuantizedFile
from quaver.adapters.onnxrt.ops.unit import Unit
from quaver.affine import QuantizedTensor


def file_branches(
    builder: Builder, file: QuantizedFile, nodes: Mapping[str, NodeProto], matches: Mapping[str, MatchedTensor]
) -> tuple[Emitter, dict[str, RecordedTensor]]:
    """Emit the float model as a trunk, with a branch for each int8 op of the file.

    Args:
        builder: the builder of the float model.
        file: the quantized file.
        nodes: by op, its node in the file.
        matches: by op, where it ends in both models.
    """
    trunk = Emitter(builder, None)
    trunk.run(())
    results = {}
    for number, unit in enumerate(builder.units):
        node = nodes.get(unit.op.name)
        if node is not None and file.is_int8(unit, node):
            mark = f"{builder.mark}{number}{builder.mark}"
            end = matches.get(unit.op.name, MatchedTensor(unit.output, ""))
            results[unit.op.name] = _branch(trunk, unit, file, node, end, mark)
    return trunk, results


def _branch(
    trunk: Emitter, unit: Unit, file: QuantizedFile, node: NodeProto, end: MatchedTensor, mark: str
) -> RecordedTensor:
    """Emit an op as the file computes it, up to the tensor that both models have."""
    graph = trunk.builder.graph
    inputs = list(graph.nodes[unit.anchor].input)
    activations = {}
    for name in unit.activations:
        parameters = file.input_parameters(node, inputs.index(name))
        activations[name] = name if parameters is None else quantize_dequantize(trunk, name, parameters, mark)

    def constant(slot: int) -> str:
        name = str(inputs[slot])
        integers = file.weight(node) if name == unit.weight else file.bias(node)
        if integers is None or integers.shape != graph.constants[name].shape:
            return name  # the trunk has it
        return _dequantized(trunk, name, integers, mark)

    rounded = quantized_inside(graph, unit, file)
    inside = [graph.nodes[index].output[0] for index in unit.nodes]

    def behind_anchor(float_node: NodeProto, slot: int) -> str:
        name = str(float_node.input[slot])
        if name in inside:
            return quantize_dequantize(trunk, name + mark, rounded[name], mark) if name in rounded else name + mark
        file_node, value = file.node_named(float_node.name), graph.constants.get(name)
        integers = None if file_node is None or value is None else file.operand(file_node, slot)
        if integers is None or value is None or integers.shape != value.shape:
            return name
        return _dequantized(trunk, name, integers, mark)

    result = copy_unit(trunk, unit, CopyInputs(activations, constant, behind_anchor), mark)
    result = end.float_tensor + mark if end.float_tensor in inside else result
    parameters = file.parameters(end.file_tensor)
    return RecordedTensor(result) if parameters is None else quantized(trunk, result, parameters)


def _dequantized(trunk: Emitter, name: str, constant: QuantizedTensor, mark: str) -> str:
    """Emit a constant as the integers of the file and a DequantizeLinear, and return the name of the result."""
    integers, result, *scale_names = (f"{name}{mark}{part}" for part in ("q", "dq", "scale", "zero"))
    values, parameters = constant
    axis = {} if parameters.axis is None else {"axis": parameters.axis}
    trunk.nodes.append(protobuf.node("DequantizeLinear", [integers, *scale_names], [result], result, **axis))
    trunk.entries.append(trunk.builder.store.add(integers, values))
    trunk.entries.append(scale_entries(scale_names, parameters))
    return result
