"""Where the time goes: seconds of each node, by the clock of the thread that computes it.

MXNet's profiler names operators, not nodes. So a graph is run node by node, which its monitor does, and after each of
them the thread that computed it is asked for its time.
"""

from __future__ import annotations

import ctypes
import time
from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise

import numpy as np

from quaver.adapters.batches import Feed
from quaver.adapters.mxnet.build.quantizing import Builder
from quaver.adapters.mxnet.read.graph import Graph
from quaver.adapters.mxnet.read.importing import import_mxnet
from quaver.adapters.mxnet.read.network import Network
from quaver.adapters.mxnet.run.engine import inside
from quaver.adapters.mxnet.run.session import Session
from quaver.adapters.mxnet.time.kernels import owners

# Which of the sorted runs stands for all: what slows a run down comes from outside.
QUANTILE = 0.25
# Runs to take at least and at most, and seconds after which there is an end.
RUNS = (5, 40)
SECONDS = 0.2


def op_seconds(builder: Builder, network: Network, feed: Feed, threads: int) -> dict[str, float]:
    """Seconds of each op in a built network, with what follows it. What belongs to no op is under the empty name."""
    belongs = owners(Graph(network.symbol), builder.belongs)
    seconds = dict.fromkeys(["", *builder.by_name], 0.0)
    for node, taken in node_seconds(network, feed, threads).items():
        seconds[belongs.get(node, "")] += taken
    return seconds


def seconds_by_kind(builder: Builder, feed: Feed) -> tuple[dict[str, float], float]:
    """Seconds of the nodes of each kind in one inference on one thread, and of all nodes together."""
    taken = node_seconds(builder.network, feed, 1)
    seconds: dict[str, float] = defaultdict(float)
    for node in builder.graph.in_order():
        seconds[node.kind] += taken.get(node.name, 0.0)
    return dict(seconds), sum(taken.values())


def node_seconds(network: Network, feed: Feed, threads: int) -> dict[str, float]:
    """Seconds of each node in one inference, in runs that little disturbs."""
    stopwatch = _Stopwatch(network, feed, threads)
    runs: list[dict[str, float]] = []
    end = time.perf_counter() + SECONDS
    while len(runs) < RUNS[0] or (len(runs) < RUNS[1] and time.perf_counter() < end):
        runs.append(stopwatch.run())
    return {name: float(np.quantile([run.get(name, 0.0) for run in runs], QUANTILE)) for name in runs[0]}


class _Stopwatch:
    """A bound network that stops the time after each node."""

    def __init__(self, network: Network, feed: Feed, threads: int) -> None:
        self._mx = import_mxnet()
        self._clock: Callable[[], float] = time.thread_time if threads < 2 else time.perf_counter
        graph = Graph(network.symbol)
        self._owners = {output: node.name for node in graph.in_order() for output in graph.outputs(node)}
        self._session = Session(network.symbol, network.parameters, threads)
        self._feed = feed
        self._session.run(feed)  # weights are quantized and laid out in the first run
        self._stamp = self._call = 0.0
        self._taken: dict[str, float] = {}
        self._session.executor.set_monitor_callback(self._note)

    def run(self) -> dict[str, float]:
        """Seconds of each node."""
        self._taken = {}
        asked = [inside(self._clock) for _ in range(5)]
        self._call = min(after - before for before, after in pairwise(asked))  # what asking takes by itself
        self._stamp = asked[-1]
        self._session.run(self._feed)
        return self._taken

    def _note(self, name: bytes | str, handle: int) -> None:
        output = name.decode() if isinstance(name, bytes) else name
        array = self._mx.nd.NDArray(ctypes.cast(handle, self._mx.base.NDArrayHandle), writable=False)
        now = inside(self._clock, after=[array])
        owner = self._owners.get(output, output)
        if owner not in self._taken:  # the first of its outputs
            self._taken[owner] = max(now - self._stamp - self._call, 0.0)
        self._stamp = now
