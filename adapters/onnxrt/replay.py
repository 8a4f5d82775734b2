"""Each op of a quantized file by itself, fed from the float model, with the scales and the weight of the file."""

from __future__ import annotations

import numpy as np

from quaver.adapters.onnxrt import wire
from quaver.adapters.onnxrt.assembler import Assembler
from quaver.adapters.onnxrt.foreign import QuantizedFile, Scaled
from quaver.adapters.onnxrt.observation import copy_unit
from quaver.adapters.onnxrt.units import Unit
from quaver.adapters.onnxrt.walk import Walk


def replayed(
    assembler: Assembler, file: QuantizedFile, visible: dict[str, str]
) -> tuple[Walk, dict[str, tuple[Unit, str]]]:
    """The float model as a trunk, with a branch for each int8 op of the file; `visible` as `FileView` has it."""
    trunk = Walk(assembler, None)
    trunk.run(())
    results = {}
    for number, unit in enumerate(assembler.units):
        if file.is_int8(unit, file.node(unit)):
            mark = f"{assembler.mark}{number}{assembler.mark}"
            result = _branch(assembler, trunk, unit, file, file.scaled(visible.get(unit.op.name, "")), mark)
            results[unit.op.name] = unit, result
    return trunk, results


def _branch(
    assembler: Assembler, trunk: Walk, unit: Unit, file: QuantizedFile, written: Scaled | None, mark: str
) -> str:
    node = file.node(unit)
    assert node is not None
    inputs = list(assembler.graph.nodes[unit.anchor].input)
    renamed = {}
    for name in unit.activations:
        scaled = file.read(node, inputs.index(name))
        renamed[name] = name if scaled is None else _through(trunk, name, scaled, mark)

    def constant(slot: int) -> str:
        weight = file.weight(node) if slot == 1 else None
        name = str(inputs[slot])
        if weight is None or weight.values.shape != assembler.graph.constants[name].shape:
            return name  # the trunk has it
        made = f"{name}{mark}real"
        trunk.entries.append(assembler.store.add(made, np.ascontiguousarray(weight.values)))
        return made

    result = copy_unit(assembler, trunk, unit, renamed, constant, mark)
    return result if written is None else _through(trunk, result, written, mark)


def _through(trunk: Walk, name: str, scaled: Scaled, mark: str) -> str:
    """Quantize and dequantize a tensor by the constants of the file."""
    quantized, result, scale, zero = (f"{name}{mark}{part}" for part in ("q", "dq", "scale", "zero"))
    trunk.parts.append(
        wire.node("QuantizeLinear", [name, scale, zero], [quantized], quantized)
        + wire.node("DequantizeLinear", [quantized, scale, zero], [result], result)
    )
    trunk.entries.append(wire.tensor(scale, scaled.scale) + wire.tensor(zero, scaled.zero_point))
    return result
