"""Each op of a quantized file by itself, fed from the float model, with the scales and the weight of the file."""

from __future__ import annotations

from collections.abc import Mapping

from onnx import NodeProto

from quaver.adapters.onnxrt.build import protobuf
from quaver.adapters.onnxrt.build.builder import Builder
from quaver.adapters.onnxrt.build.emitter import Emitter
from quaver.adapters.onnxrt.inspect.matching import MatchedTensor, quantized_inside
from quaver.adapters.onnxrt.inspect.other_nodes import quantize_dequantize
from quaver.adapters.onnxrt.inspect.quantized_file import QuantizedFile
from quaver.adapters.onnxrt.inspect.taps import RecordedTensor, constants, copy_unit, quantized
from quaver.adapters.onnxrt.ops.units import Unit
from quaver.affine import QuantizedTensor


def file_branches(
    builder: Builder, file: QuantizedFile, nodes: Mapping[str, NodeProto], points: Mapping[str, MatchedTensor]
) -> tuple[Emitter, dict[str, RecordedTensor]]:
    """The float model as a trunk, with a branch for each int8 op of the file.

    `nodes` and `points` hold, by op, the node of the file, and where it ends in both models.
    """
    trunk = Emitter(builder, None)
    trunk.run(())
    results = {}
    for number, unit in enumerate(builder.units):
        node = nodes.get(unit.op.name)
        if node is not None and file.is_int8(unit, node):
            mark = f"{builder.mark}{number}{builder.mark}"
            end = points.get(unit.op.name, MatchedTensor(unit.output, ""))
            results[unit.op.name] = _branch(builder, trunk, unit, file, node, end, mark)
    return trunk, results


def _branch(
    builder: Builder,
    trunk: Emitter,
    unit: Unit,
    file: QuantizedFile,
    node: NodeProto,
    end: MatchedTensor,
    mark: str,
) -> RecordedTensor:
    """The nodes of an op with what the file has in their place, up to the point that can be seen in both models."""
    inputs = list(builder.graph.nodes[unit.anchor].input)
    renamed = {}
    for name in unit.activations:
        read = file.read(node, inputs.index(name))
        renamed[name] = name if read is None else quantize_dequantize(trunk, name, read, mark)

    def constant(slot: int) -> str:
        name = str(inputs[slot])
        found = file.weight(node) if name == unit.weight else file.bias(node)
        if found is None or found.shape != builder.graph.constants[name].shape:
            return name  # the trunk has it
        return _dequantized(builder, trunk, name, found, mark)

    rounded = quantized_inside(builder.graph, unit, file)
    inside = [builder.graph.nodes[index].output[0] for index in unit.nodes]

    def behind(own: NodeProto, slot: int) -> str:
        name = str(own.input[slot])
        if name in inside:
            return quantize_dequantize(trunk, name + mark, rounded[name], mark) if name in rounded else name + mark
        file_tensor, real = file.node_named(own.name), builder.graph.constants.get(name)
        found = None if file_tensor is None or real is None else file.operand(file_tensor, slot)
        if found is None or real is None or found.shape != real.shape:
            return name
        return _dequantized(builder, trunk, name, found, mark)

    result = copy_unit(builder, trunk, unit, renamed, constant, mark, behind=behind)
    result = end.float_tensor + mark if end.float_tensor in inside else result
    written = file.parameters(end.file_tensor)
    return RecordedTensor(result) if written is None else quantized(trunk, result, written)


def _dequantized(builder: Builder, trunk: Emitter, name: str, constant: QuantizedTensor, mark: str) -> str:
    """A constant in integers, as it is in the file, and the node that dequantizes it."""
    quantized, result, *by = (f"{name}{mark}{part}" for part in ("q", "dq", "scale", "zero"))
    values, parameters = constant
    axis = {} if parameters.axis is None else {"axis": parameters.axis}
    trunk.parts.append(protobuf.node("DequantizeLinear", [quantized, *by], [result], result, **axis))
    trunk.entries.append(builder.store.add(quantized, values))
    trunk.entries.append(constants(by, parameters))
    return result
