"""Each op of a quantized file by itself, fed from the float model, with the scales and the weight of the file."""

from __future__ import annotations

from collections.abc import Mapping

from onnx import NodeProto

from quaver.adapters.onnxrt.build import wire
from quaver.adapters.onnxrt.build.assembler import Assembler
from quaver.adapters.onnxrt.build.walk import Walk
from quaver.adapters.onnxrt.look.observation import Tap, constants, copy_unit, quantized
from quaver.adapters.onnxrt.look.quantized_file import QuantizedFile
from quaver.adapters.onnxrt.read.units import Unit
from quaver.quantization import QuantizationParameters, QuantizedTensor


def replayed(
    assembler: Assembler, file: QuantizedFile, nodes: Mapping[str, NodeProto], visible: Mapping[str, str]
) -> tuple[Walk, dict[str, tuple[Unit, Tap]]]:
    """The float model as a trunk, with a branch for each int8 op of the file.

    `nodes` and `visible` hold, by op, the node of the file and the tensor in which its output is seen.
    """
    trunk = Walk(assembler, None)
    trunk.run(())
    results = {}
    for number, unit in enumerate(assembler.units):
        node = nodes.get(unit.op.name)
        if node is not None and file.is_int8(unit, node):
            mark = f"{assembler.mark}{number}{assembler.mark}"
            written = file.parameters(visible.get(unit.op.name, ""))
            results[unit.op.name] = unit, _branch(assembler, trunk, unit, file, node, written, mark)
    return trunk, results


def _branch(
    assembler: Assembler,
    trunk: Walk,
    unit: Unit,
    file: QuantizedFile,
    node: NodeProto,
    written: QuantizationParameters | None,
    mark: str,
) -> Tap:
    inputs = list(assembler.graph.nodes[unit.anchor].input)
    renamed = {}
    for name in unit.activations:
        read = file.read(node, inputs.index(name))
        renamed[name] = name if read is None else _through(trunk, name, read, mark)

    def constant(slot: int) -> str:
        name = str(inputs[slot])
        found = file.weight(node) if name == unit.weight else file.bias(node)
        if found is None or found.shape != assembler.graph.constants[name].shape:
            return name  # the trunk has it
        return _dequantized(assembler, trunk, name, found, mark)

    result = copy_unit(assembler, trunk, unit, renamed, constant, mark)
    return Tap(result) if written is None else quantized(trunk, result, written)


def _dequantized(assembler: Assembler, trunk: Walk, name: str, constant: QuantizedTensor, mark: str) -> str:
    """A constant in integers, as it is in the file, and the node that dequantizes it."""
    quantized, result, *by = (f"{name}{mark}{part}" for part in ("q", "dq", "scale", "zero"))
    values, parameters = constant
    axis = {} if parameters.axis is None else {"axis": parameters.axis}
    trunk.parts.append(wire.node("DequantizeLinear", [quantized, *by], [result], result, **axis))
    trunk.entries.append(assembler.store.add(quantized, values))
    trunk.entries.append(constants(by, parameters))
    return result


def _through(trunk: Walk, name: str, parameters: QuantizationParameters, mark: str) -> str:
    """Quantize and dequantize a tensor by the constants of the file."""
    quantized, result, *by = (f"{name}{mark}{part}" for part in ("q", "dq", "scale", "zero"))
    trunk.parts.append(
        wire.node("QuantizeLinear", [name, *by], [quantized], quantized)
        + wire.node("DequantizeLinear", [quantized, *by], [result], result)
    )
    trunk.entries.append(constants(by, parameters))
    return result
