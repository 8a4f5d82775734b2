"""Looking inside a model while it runs: the output of chosen ops, and each op's own error."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto

from quaver.adapters.batches import Feed
from quaver.adapters.onnxrt import session as sessions
from quaver.adapters.onnxrt import wire
from quaver.adapters.onnxrt.assembler import Assembler
from quaver.adapters.onnxrt.assembly import Assembly
from quaver.adapters.onnxrt.plan import Scheme
from quaver.adapters.onnxrt.units import Unit
from quaver.adapters.onnxrt.walk import Walk
from quaver.inside import LocalRun, WholeRun
from quaver.ops import INT8, OpConfig, QuantConfig

Watcher = Callable[[Feed], dict[str, NDArray[Any]]]


def watch(assembler: Assembler, config: QuantConfig | None, ops: Sequence[str], threads: int) -> Watcher:
    """A function that runs a feed and gives the output of each of these ops, dequantized where it is int8."""
    run = watch_whole(assembler, config, ops, threads, outputs=False)
    return lambda feed: dict(run(feed).ops)


def watch_whole(
    assembler: Assembler, config: QuantConfig | None, ops: Sequence[str], threads: int, outputs: bool = True
) -> Callable[[Feed], WholeRun]:
    """The same, with the outputs of the model besides."""
    units = {unit.op.name: unit for unit in assembler.units}
    walk = Walk(assembler, config)
    given = [value.name for value in assembler.graph.outputs]
    assembly = walk.run(())
    names = {name: walk.visible(units[name].output) for name in ops}
    extra = tuple(dict.fromkeys(tensor for tensor in names.values() if tensor not in given))
    assembly = walk.finish(extra)
    session = _session(assembly, threads)
    wanted = list(dict.fromkeys([*names.values(), *(given if outputs else ())]))

    def run(feed: Feed) -> WholeRun:
        values = dict(zip(wanted, session.run(wanted, feed), strict=True))
        seen = {name: values[tensor] for name, tensor in names.items()}
        return WholeRun(seen, [values[name] for name in given] if outputs else [])

    return run


def local_errors(
    assembler: Assembler, config: QuantConfig, feeds: Sequence[Feed], threads: int
) -> dict[str, tuple[float, float]]:
    """For each int8 op, fed with float inputs, the squared error of its output and the squared output."""
    trunk, results = branched(assembler, config)
    outputs: list[str] = []
    for unit, result in results.values():
        error, total, signal = (f"{result}{assembler.mark}{part}" for part in ("error", "noise", "signal"))
        trunk.parts.append(
            wire.node("Sub", [result, unit.output], [error], error)
            + wire.node("ReduceSumSquare", [error], [total], total, keepdims=0)
            + wire.node("ReduceSumSquare", [unit.output], [signal], signal, keepdims=0)
        )
        outputs += [total, signal]
    session = _session(trunk.finish(tuple(outputs)), threads)
    sums = np.zeros(len(outputs))
    for feed in feeds:
        sums += np.array([float(value) for value in session.run(outputs, feed)])
    pairs = zip(results, sums.reshape(-1, 2), strict=True)
    return {name: (float(error), float(signal)) for name, (error, signal) in pairs}


def watch_local(
    assembler: Assembler, config: QuantConfig, ops: Sequence[str], tensors: Sequence[str], threads: int
) -> Callable[[Feed], LocalRun]:
    """A function that runs a feed through the float model, and these ops in int8 from the same float inputs."""
    return watch_branches(assembler, *branched(assembler, config, ops), ops, tensors, threads)


def watch_branches(
    assembler: Assembler,
    trunk: Walk,
    results: Mapping[str, tuple[Unit, str]],
    ops: Sequence[str],
    tensors: Sequence[str],
    threads: int,
) -> Callable[[Feed], LocalRun]:
    """The same for branches that were added already: `results` names the tensor that each ends in."""
    units = {unit.op.name: unit for unit in assembler.units}
    given = [value.name for value in assembler.graph.outputs]
    fed = {value.name for value in assembler.graph.inputs}
    others = [name for name in tensors if name in assembler.graph.producers]
    wanted = [*(units[name].output for name in ops), *(result for _, result in results.values()), *others]
    extra = tuple(name for name in dict.fromkeys(wanted) if name not in given)
    session = _session(trunk.finish(extra), threads)
    names = list(dict.fromkeys([*given, *wanted]))

    def run(feed: Feed) -> LocalRun:
        values = dict(zip(names, session.run(names, feed), strict=True))
        int8 = {name: values[result] for name, (_, result) in results.items()}
        pairs = {name: (values[units[name].output], int8.get(name)) for name in ops}
        seen = {name: values[name] for name in others} | {name: feed[name] for name in tensors if name in fed}
        return LocalRun(pairs, seen, [values[name] for name in given])

    return run


def branched(
    assembler: Assembler, config: QuantConfig, ops: Sequence[str] | None = None
) -> tuple[Walk, dict[str, tuple[Unit, str]]]:
    """The float model as a trunk, with an int8 branch hanging off it for each of these ops that is int8.

    Returns the trunk, to be finished, and for each op its unit and the tensor that its branch ends in.
    """
    trunk, plan = Walk(assembler, None), Walk(assembler, config)
    trunk.run(())
    units = [
        unit
        for unit in assembler.units
        if config[unit.op.name].precision is INT8 and (ops is None or unit.op.name in ops)
    ]
    results = {}
    for number, unit in enumerate(units):
        mark = f"{assembler.mark}{number}{assembler.mark}"
        results[unit.op.name] = unit, _branch(assembler, trunk, unit, config[unit.op.name], plan, mark)
    return trunk, results


def _session(assembly: Assembly, threads: int) -> Any:
    return sessions.create(assembly.skeleton(), sessions.options(threads), assembly.store.path.parent)


def _branch(assembler: Assembler, trunk: Walk, unit: Unit, pick: OpConfig, plan: Walk, mark: str) -> str:
    """Add a unit in int8 beside the float trunk, its tensors scaled as in `plan`; returns the name of its output."""

    def scheme(name: str) -> Scheme:
        return plan.schemes[assembler.root(name)]

    def constant(slot: int) -> str:
        return trunk.constant_copy(unit, pick, slot, scheme(unit.activations[0]))

    renamed = {name: trunk.quantized_copy(name, scheme(name), mark) for name in unit.activations}
    result = copy_unit(assembler, trunk, unit, renamed, constant, mark)
    if unit.quantized_output:
        return trunk.quantized_copy(unit.output, scheme(unit.output), mark, source=result)
    return result


def copy_unit(
    assembler: Assembler, trunk: Walk, unit: Unit, renamed: Mapping[str, str], constant: Callable[[int], str], mark: str
) -> str:
    """Add a unit's nodes once more, reading other activations and constants; returns the name of what they produce."""
    inside = {output for index in unit.nodes for output in assembler.graph.nodes[index].output}
    for index in unit.nodes:
        node = NodeProto()
        node.CopyFrom(assembler.graph.nodes[index])
        node.name += mark
        for slot, name in enumerate(node.input):
            if index == unit.anchor and name in renamed:
                node.input[slot] = renamed[name]
            elif index == unit.anchor and slot in (1, 2) and name in (unit.weight, unit.bias):
                node.input[slot] = constant(slot)
            elif name in inside:
                node.input[slot] = name + mark
        for slot, name in enumerate(node.output):
            node.output[slot] = name + mark
        trunk.parts.append(wire.block(wire.GRAPH_NODE, node.SerializeToString(deterministic=True)))
    return unit.output + mark
