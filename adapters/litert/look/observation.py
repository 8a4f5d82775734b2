"""Looking inside a model while it runs: the output of chosen ops, and each op's own error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quaver.adapters.batches import Feed
from quaver.adapters.litert.build.quantizing import Builder
from quaver.adapters.litert.look.branches import Branches
from quaver.adapters.litert.look.matching import find_ops
from quaver.adapters.litert.read.graph import Graph
from quaver.adapters.litert.run.all_tensors import Whole
from quaver.ops import QuantConfig
from quaver.quantization import as_float

Watcher = Callable[[Feed], dict[str, NDArray[Any]]]


def watch(builder: Builder, inputs: list[str], config: QuantConfig | None, ops: Sequence[str], threads: int) -> Watcher:
    """A function that runs a feed and gives the output of each of these ops, dequantized where it is int8."""
    whole = Whole(Graph(builder.build(config)), inputs, threads)
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
    built = Graph(builder.build(config))
    branches = Branches(builder, built, find_ops(builder, built), inputs, threads)
    sums = {name: np.zeros(2) for name in branches.names}
    for feed in feeds:
        branches.run(feed)
        for name in branches.names:
            before, after = branches.output(name)
            assert after is not None
            sums[name] += _squares(before.astype(np.float64) - as_float(after)), _squares(before)
    return {name: (float(noise), float(signal)) for name, (noise, signal) in sums.items()}


def _squares(values: NDArray[Any]) -> float:
    return float(np.sum(np.square(values, dtype=np.float64)))
