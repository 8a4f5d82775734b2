"""Looking inside a model while it runs: the output of chosen ops, and each op's own error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quaver.adapters.batches import Feed
from quaver.adapters.litert.alone import Alone, Whole, alone, origin, quantized
from quaver.adapters.litert.quantizing import Builder
from quaver.ops import INT8, QuantConfig

Watcher = Callable[[Feed], dict[str, NDArray[Any]]]


def watch(builder: Builder, inputs: list[str], config: QuantConfig | None, ops: Sequence[str], threads: int) -> Watcher:
    """A function that runs a feed and gives the output of each of these ops, dequantized where it is int8."""
    whole = Whole(builder.build(config), inputs, threads)
    tensors = {name: builder.output(name) for name in ops}

    def run(feed: Feed) -> dict[str, NDArray[Any]]:
        whole.invoke(feed)
        return {name: whole.value(tensor) for name, tensor in tensors.items()}

    return run


def local_errors(
    builder: Builder, inputs: list[str], config: QuantConfig, feeds: Sequence[Feed], threads: int
) -> dict[str, tuple[float, float]]:
    """For each int8 op, fed with float inputs, the squared error of its output and the squared output.

    The float model runs once for each feed; every op then runs by itself on what the float model gave it.
    """
    trunk, built = Whole(builder.build(None), inputs, threads), Whole(builder.build(config), inputs, threads)
    branches: dict[str, Alone] = {}
    names = [unit.op.name for unit in builder.units if config[unit.op.name].precision is INT8]
    sums = {name: np.zeros(2) for name in names}
    for feed in feeds:
        trunk.invoke(feed)
        if not branches:
            branches = {name: _branch(builder, trunk, built, name, threads) for name in names}
        for name, branch in branches.items():
            fed = {tensor: _feed(trunk, built, tensor) for tensor in branch.inputs}
            before, after = trunk.value(branch.output), _output(built, branch, fed)
            sums[name] += _squares(before.astype(np.float64) - after), _squares(before)
    return {name: (float(noise), float(signal)) for name, (noise, signal) in sums.items()}


def _branch(builder: Builder, trunk: Whole, built: Whole, name: str, threads: int) -> Alone:
    graph, output = built.graph, builder.output(name)
    index = next(op.index for op in graph.operators if output in map(graph.tensor_name, op.outputs))
    shapes = {
        graph.tensor_name(tensor): trunk.shape(graph.tensor_name(origin(graph, tensor)))
        for tensor in (*graph.operators[index].inputs, *graph.operators[index].outputs)
        if tensor >= 0 and not graph.is_constant(tensor)
    }
    return alone(graph, index, shapes, threads)


def _feed(trunk: Whole, built: Whole, tensor: str) -> NDArray[Any]:
    """What a tensor of the quantized model would hold if all before it had run in float."""
    graph = built.graph
    source = graph.tensor_name(origin(graph, graph.tensor_at(tensor)))
    values, (scale, zero) = trunk.raw(source), built.scale(tensor)
    return values if scale == 0.0 else quantized(values, scale, zero)


def _output(built: Whole, branch: Alone, fed: Feed) -> NDArray[np.float32]:
    scale, zero = built.scale(branch.output)
    values = branch.session.run(fed)[0]
    return values if scale == 0.0 else (values.astype(np.float32) - zero) * np.float32(scale)


def _squares(values: NDArray[Any]) -> float:
    return float(np.sum(np.square(values, dtype=np.float64)))
