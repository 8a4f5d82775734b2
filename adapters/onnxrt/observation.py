"""Looking inside a model while it runs: the output of chosen ops, and each op's own error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto

from quaver.adapters.batches import Feed
from quaver.adapters.onnxrt import session as sessions
from quaver.adapters.onnxrt import wire
from quaver.adapters.onnxrt.assembly import Assembler, Assembly, Pass
from quaver.adapters.onnxrt.units import Unit
from quaver.ops import INT8, QuantConfig

Watcher = Callable[[Feed], dict[str, NDArray[Any]]]


def watch(assembler: Assembler, config: QuantConfig | None, ops: Sequence[str], threads: int) -> Watcher:
    """A function that runs a feed and gives the output of each of these ops, dequantized where it is int8."""
    units = {unit.op.name: unit for unit in assembler.units}
    walk = Pass(assembler, config)
    given = {value.name for value in assembler.graph.outputs}
    assembly = walk.run(())
    names = {name: walk.visible(units[name].output) for name in ops}
    extra = tuple(dict.fromkeys(tensor for tensor in names.values() if tensor not in given))
    assembly = walk.finish(extra)
    session = _session(assembly, threads)

    def run(feed: Feed) -> dict[str, NDArray[Any]]:
        wanted = list(dict.fromkeys(names.values()))
        values = dict(zip(wanted, session.run(wanted, feed), strict=True))
        return {name: values[tensor] for name, tensor in names.items()}

    return run


def local_errors(
    assembler: Assembler, config: QuantConfig, feeds: Sequence[Feed], threads: int
) -> dict[str, tuple[float, float]]:
    """For each int8 op, fed with float inputs, the squared error of its output and the squared output.

    One session runs the float model as a trunk, with an int8 branch hanging off it for each op.
    """
    trunk = Pass(assembler, None)
    trunk.run(())
    units = [unit for unit in assembler.units if config[unit.op.name].precision is INT8]
    outputs: list[str] = []
    for number, unit in enumerate(units):
        outputs += _branch(assembler, trunk, unit, config, f"{assembler.mark}{number}{assembler.mark}")
    session = _session(trunk.finish(tuple(outputs)), threads)
    sums = np.zeros(len(outputs))
    for feed in feeds:
        sums += np.array([float(value) for value in session.run(outputs, feed)])
    return {
        unit.op.name: (float(error), float(signal))
        for unit, (error, signal) in zip(units, sums.reshape(-1, 2), strict=True)
    }


def _session(assembly: Assembly, threads: int) -> Any:
    return sessions.create(assembly.skeleton(), sessions.options(threads), assembly.store.path.parent)


def _branch(assembler: Assembler, trunk: Pass, unit: Unit, config: QuantConfig, mark: str) -> list[str]:
    """Add a unit in int8 beside the float trunk; returns the names of its summed squared error and signal."""
    pick = config[unit.op.name]
    scheme = (pick.calibration, pick.scheme)
    renamed: dict[str, str] = {}
    for name in unit.activations:
        renamed[name] = trunk.quantized_copy(name, scheme, mark)
    inside = {output for index in unit.nodes for output in assembler.graph.nodes[index].output}
    for index in unit.nodes:
        node = NodeProto()
        node.CopyFrom(assembler.graph.nodes[index])
        node.name += mark
        for slot, name in enumerate(node.input):
            if index == unit.anchor and name in renamed:
                node.input[slot] = renamed[name]
            elif index == unit.anchor and slot in (1, 2) and name in (unit.weight, unit.bias):
                node.input[slot] = trunk.constant_copy(unit, pick, slot, scheme)
            elif name in inside:
                node.input[slot] = name + mark
        for slot, name in enumerate(node.output):
            node.output[slot] = name + mark
        trunk.parts.append(wire.block(wire.GRAPH_NODE, node.SerializeToString(deterministic=True)))
    result = unit.output + mark
    if unit.quantized_output:
        result = trunk.quantized_copy(unit.output, scheme, mark, source=result)
    error, total, signal = (f"{result}{mark}{part}" for part in ("error", "noise", "signal"))
    trunk.parts.append(
        wire.node("Sub", [result, unit.output], [error], error)
        + wire.node("ReduceSumSquare", [error], [total], total, keepdims=0)
        + wire.node("ReduceSumSquare", [unit.output], [signal], signal, keepdims=0)
    )
    return [total, signal]
