"""Which op's result goes to which others in 8 bits, if both run reduced: where a conversion may have to stand."""

from __future__ import annotations

from quaver.adapters.onnxrt.build.assembler import Assembler


def flows(assembler: Assembler) -> dict[str, tuple[str, ...]]:
    """For each op that writes 8 bits, the ops that read what it wrote, moved about or not."""
    readers: dict[str, list[str]] = {}
    for unit in assembler.units:
        for name in unit.activations if unit.calibrated else ():
            readers.setdefault(assembler.root(name), []).append(unit.op.name)
    found = {}
    for unit in assembler.units:
        if unit.quantized_output and not unit.looks_up:  # rows with a scale each are float
            reading = dict.fromkeys(readers.get(assembler.root(unit.output), ()))
            reading.pop(unit.op.name, None)
            if reading:
                found[unit.op.name] = tuple(reading)
    return found
