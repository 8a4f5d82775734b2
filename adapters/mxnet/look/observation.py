"""What ops give, seen in any configuration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from quaver.adapters.batches import Feed
from quaver.adapters.mxnet.build.quantizing import Builder
from quaver.adapters.mxnet.read.graph import Graph
from quaver.adapters.mxnet.read.network import Network
from quaver.adapters.mxnet.run.session import Session, shown
from quaver.ops import QuantConfig
from quaver.quantization import Array, QuantizationParameters, QuantizedTensor, as_float

Seen = Array | QuantizedTensor
Watcher = Callable[[Feed], dict[str, Array]]


def watch(builder: Builder, config: QuantConfig | None, ops: Sequence[str], threads: int) -> Watcher:
    """A function that runs a feed and gives the output of each of these ops, as float."""
    observer = Observer(builder.build(config), ops, threads)
    return lambda feed: {name: as_float(seen) for name, seen in observer.run(feed)[0].items()}


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
        seen = {name: _seen([found[tensor] for tensor in tensors]) for name, tensors in self._tensors.items()}
        return seen, values[len(self._names) :]


def op_outputs(graph: Graph, op: str) -> list[str]:
    """What an op writes: the tensor, and in int8 its smallest and largest value as well; nothing if it is not there."""
    for name in (f"quantized_{op}", op):
        node = graph.by_name.get(name)
        if node is not None:
            outputs = graph.outputs(node)
            return outputs[:3] if name != op and len(outputs) >= 3 else outputs[:1]
    return []


def _seen(values: Sequence[Array]) -> Seen:
    if len(values) == 1 or values[0].dtype.kind == "f":
        return values[0]
    tensor, low, high = values
    return QuantizedTensor(tensor, parameters(tensor.dtype, float(low.min()), float(high.max())))


def parameters(dtype: Any, low: float, high: float) -> QuantizationParameters:
    """What the integers of MXNet stand for: zero is 0, and the larger end of the range is the largest integer."""
    steps = {"int8": 127, "uint8": 255, "int32": 2**31 - 1}[np.dtype(dtype).name]
    scale = max(abs(low), abs(high)) / steps
    return QuantizationParameters(np.asarray(scale, np.float32), np.asarray(0, dtype))
