"""Which node of a built graph belongs to which op, and how it runs."""

from __future__ import annotations

import ctypes
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from quaver.adapters.data import count_samples
from quaver.adapters.mxnet.build.builder import BACKEND, Builder
from quaver.adapters.mxnet.inspect.integers import DEQUANTIZING, PREFIX, QUANTIZING
from quaver.adapters.mxnet.load.graph import Graph, Node
from quaver.adapters.mxnet.load.network import Network, take_in
from quaver.adapters.mxnet.load.sources import import_mxnet
from quaver.adapters.mxnet.run.session import Session
from quaver.adapters.mxnet.run.worker_thread import inside
from quaver.adapters.options import TimingOptions
from quaver.adapters.samples import make_batch
from quaver.introspection import KernelTime, Timing
from quaver.types import Feed, ModelLike


def is_quantized(node: Node) -> bool:
    """Whether a node computes in int8."""
    return node.operator.startswith("_contrib_quantized_") or node.attributes.get("quantized", "").lower() == "true"


def kernel_name(node: Node) -> str:
    """What runs, in MXNet's words, and in which type where the words do not say it."""
    return f"{node.operator} int8" if is_quantized(node) and "quantized" not in node.operator else node.operator


def owners(graph: Graph, belongs: Mapping[str, str]) -> dict[str, str]:
    """For each node of a built graph the op it belongs to; `belongs` tells that of nodes of the float graph.

    Quantizing a tensor belongs to the op that reads it, dequantizing to the op that wrote it.
    """
    found: dict[str, str] = {}
    for node in graph.in_order():
        plain = node.name.removeprefix(PREFIX) if is_quantized(node) else node.name
        if plain in belongs:
            found[node.name] = belongs[plain]
    for node in graph.in_order():
        if node.operator == QUANTIZING:
            owner = next((found[one.name] for one in graph.readers.get(node.index, ()) if one.name in found), None)
        elif node.operator == DEQUANTIZING:
            writer = graph.nodes.get(node.inputs[0][0])
            owner = found.get(writer.name) if writer is not None else None
        else:
            continue
        if owner is not None:
            found[node.name] = owner
    return found


def precisions(graph: Graph, ops: Iterable[str]) -> dict[str, str]:
    """How each op runs; one that is not found is left out."""
    found = {}
    for op in ops:
        if f"{PREFIX}{op}" in graph.by_name:
            found[op] = "int8" if is_quantized(graph.by_name[f"{PREFIX}{op}"]) else "fp32"
        elif op in graph.by_name:
            found[op] = "fp32"
    return found


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


def time_model(model: ModelLike, data: Any, options: TimingOptions, beside: Builder | None = None) -> Timing:
    """Run a model for its time. Kernels carry the names of the ops of `beside`, the float model's, if it is given."""
    given = take_in(model)
    network = Network(given.symbol.get_backend_symbol(BACKEND), given.args, given.aux, given.inputs)
    feed = make_batch(data, network.inputs, options.batch)
    session = Session(network.symbol, network.parameters, options.threads)
    for _ in range(max(options.warmup, 1)):
        session.run(feed)
    latencies = []
    for _ in range(options.runs):
        start = time.perf_counter()
        session.run(feed)
        latencies.append(time.perf_counter() - start)
    graph = Graph(network.symbol)
    seconds = node_seconds(network, feed, options.threads)
    belongs = owners(graph, beside.belongs) if beside is not None else {}
    usual, together = statistics.median(latencies), sum(seconds.values())
    scale = usual / together if together else 1.0
    kernels = tuple(
        KernelTime(node.name, belongs.get(node.name, ""), kernel_name(node), scale * seconds.get(node.name, 0.0))
        for node in graph.in_order()
    )
    if beside is not None:
        known = precisions(graph, beside.by_name)
    else:
        known = {node.name: "int8" if is_quantized(node) else "fp32" for node in graph.in_order()}
    how = f"ops: nodes run one by one, whose sum is {together / usual:.2f} of p50, scaled to p50"
    return Timing(kernels, tuple(latencies), count_samples(feed), options.threads, known, how)
