"""Each op of a quantized file by itself, fed from the float model, with the scales and the weight of the file."""

from __future__ import annotations

from collections.abc import Mapping

from onnx import NodeProto

from quaver.adapters.onnxrt.build import protobuf as wire
from quaver.adapters.onnxrt.build.builder import Builder
from quaver.adapters.onnxrt.build.emitter import Emitter
from quaver.adapters.onnxrt.inspect.matching import Point, rounded_within
from quaver.adapters.onnxrt.inspect.other_nodes import through
from quaver.adapters.onnxrt.inspect.quantized_file import QuantizedFile
from quaver.adapters.onnxrt.inspect.taps import Tap, constants, copy_unit, quantized
from quaver.adapters.onnxrt.ops.units import Unit
from quaver.affine import QuantizedTensor


def replayed(
    assembler: Builder, file: QuantizedFile, nodes: Mapping[str, NodeProto], points: Mapping[str, Point]
) -> tuple[Emitter, dict[str, Tap]]:
    """The float model as a trunk, with a branch for each int8 op of the file.

    `nodes` and `points` hold, by op, the node of the file, and where it ends in both models.
    """
    trunk = Emitter(assembler, None)
    trunk.run(())
    results = {}
    for number, unit in enumerate(assembler.units):
        node = nodes.get(unit.op.name)
        if node is not None and file.is_int8(unit, node):
            mark = f"{assembler.mark}{number}{assembler.mark}"
            end = points.get(unit.op.name, Point(unit.output, ""))
            results[unit.op.name] = _branch(assembler, trunk, unit, file, node, end, mark)
    return trunk, results


def _branch(
    assembler: Builder,
    trunk: Emitter,
    unit: Unit,
    file: QuantizedFile,
    node: NodeProto,
    end: Point,
    mark: str,
) -> Tap:
    """The nodes of an op with what the file has in their place, up to the point that can be seen in both models."""
    inputs = list(assembler.graph.nodes[unit.anchor].input)
    renamed = {}
    for name in unit.activations:
        read = file.read(node, inputs.index(name))
        renamed[name] = name if read is None else through(trunk, name, read, mark)

    def constant(slot: int) -> str:
        name = str(inputs[slot])
        found = file.weight(node) if name == unit.weight else file.bias(node)
        if found is None or found.shape != assembler.graph.constants[name].shape:
            return name  # the trunk has it
        return _dequantized(assembler, trunk, name, found, mark)

    rounded = rounded_within(assembler.graph, unit, file)
    inside = [assembler.graph.nodes[index].output[0] for index in unit.nodes]

    def behind(own: NodeProto, slot: int) -> str:
        name = str(own.input[slot])
        if name in inside:
            return through(trunk, name + mark, rounded[name], mark) if name in rounded else name + mark
        theirs, real = file.of_name(own.name), assembler.graph.constants.get(name)
        found = None if theirs is None or real is None else file.operand(theirs, slot)
        if found is None or real is None or found.shape != real.shape:
            return name
        return _dequantized(assembler, trunk, name, found, mark)

    result = copy_unit(assembler, trunk, unit, renamed, constant, mark, behind=behind)
    result = end.ours + mark if end.ours in inside else result
    written = file.parameters(end.theirs)
    return Tap(result) if written is None else quantized(trunk, result, written)


def _dequantized(assembler: Builder, trunk: Emitter, name: str, constant: QuantizedTensor, mark: str) -> str:
    """A constant in integers, as it is in the file, and the node that dequantizes it."""
    quantized, result, *by = (f"{name}{mark}{part}" for part in ("q", "dq", "scale", "zero"))
    values, parameters = constant
    axis = {} if parameters.axis is None else {"axis": parameters.axis}
    trunk.parts.append(wire.node("DequantizeLinear", [quantized, *by], [result], result, **axis))
    trunk.entries.append(assembler.store.add(quantized, values))
    trunk.entries.append(constants(by, parameters))
    return result
