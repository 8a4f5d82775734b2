"""Looking inside a model while it runs: the output of chosen ops, and each op's own error."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from quaver.adapters.batches import Feed
from quaver.adapters.mxnet.build.quantizing import Builder
from quaver.adapters.mxnet.look.branches import Branches
from quaver.adapters.mxnet.look.integers import Seen, seen
from quaver.adapters.mxnet.read.graph import Graph
from quaver.adapters.mxnet.read.network import Network
from quaver.adapters.mxnet.run.session import Session, shown
from quaver.ops import QuantConfig
from quaver.quantization import Array, as_float

Watcher = Callable[[Feed], dict[str, Array]]


def watch(builder: Builder, config: QuantConfig | None, ops: Sequence[str], threads: int) -> Watcher:
    """A function that runs a feed and gives the output of each of these ops, as float."""
    observer = Observer(builder.build(config), ops, threads)
    return lambda feed: {name: as_float(value) for name, value in observer.run(feed)[0].items()}


def local_errors(
    builder: Builder, config: QuantConfig, feeds: Sequence[Feed], threads: int
) -> dict[str, tuple[float, float]]:
    """For each int8 op, fed with float inputs, the squared error of its output and the squared output."""
    branches = Branches(builder, builder.build(config), config.reduced_ops, (), threads)
    sums = {name: np.zeros(2) for name in config.reduced_ops}
    for feed in feeds:
        for name, (before, after) in branches.run(feed)[0].items():
            assert after is not None
            sums[name] += _squares(before.astype(np.float64) - as_float(after)), _squares(before)
    return {name: (float(noise), float(signal)) for name, (noise, signal) in sums.items()}


def _squares(values: Array) -> float:
    return float(np.sum(np.square(values, dtype=np.float64)))


class Observer:
    """A network whose ops can be looked at, in int8 or in float."""

    def __init__(self, network: Network, ops: Sequence[str], threads: int) -> None:
        graph = Graph(network.symbol)
        self._tensors = {name: tensors for name in ops if (tensors := op_outputs(graph, name))}
        self._names = [name for tensors in self._tensors.values() for name in tensors]
        self._session = Session(shown(network.symbol, self._names), network.parameters, threads)

    def run(self, feed: Feed) -> tuple[dict[str, Seen], list[Array]]:
        """The output of each op, and those of the model."""
        values = self._session.run(feed)
        found = dict(zip(self._names, values, strict=False))
        ops = {name: seen([found[tensor] for tensor in tensors]) for name, tensors in self._tensors.items()}
        return ops, values[len(self._names) :]


def op_outputs(graph: Graph, op: str) -> list[str]:
    """What an op writes: the tensor, and in int8 its smallest and largest value as well; nothing if it is not there."""
    for name in (f"quantized_{op}", op):
        node = graph.by_name.get(name)
        if node is not None:
            outputs = graph.outputs(node)
            return outputs[:3] if name != op and len(outputs) >= 3 else outputs[:1]
    return []
