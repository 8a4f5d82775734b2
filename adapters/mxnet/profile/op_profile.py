"""Time each op of a network, and tell how it runs."""

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
from quaver.adapters.mxnet.inspect.integers import DEQUANTIZE_OPERATOR, QUANTIZE_OPERATOR, QUANTIZED_PREFIX
from quaver.adapters.mxnet.load.graph import Graph, Node
from quaver.adapters.mxnet.load.network import Network, load_network
from quaver.adapters.mxnet.load.sources import import_mxnet
from quaver.adapters.mxnet.run.session import Session
from quaver.adapters.mxnet.run.worker_thread import call_in_worker
from quaver.adapters.options import TimingOptions
from quaver.adapters.samples import make_batch
from quaver.introspection import KernelTime, Timing
from quaver.types import Feed, ModelLike


def is_quantized(node: Node) -> bool:
    """Return True if a node computes in int8."""
    return node.operator.startswith("_contrib_quantized_") or node.attributes.get("quantized", "").lower() == "true"


def kernel_name(node: Node) -> str:
    """Return MXNet's name of what runs, with its number type where the name does not tell it."""
    return f"{node.operator} int8" if is_quantized(node) and "quantized" not in node.operator else node.operator


def owners(graph: Graph, owner_of: Mapping[str, str]) -> dict[str, str]:
    """Return the op that each node of a built graph belongs to.

    Quantizing a tensor belongs to the op that reads it, dequantizing to the op that wrote it.

    Args:
        graph: a built graph.
        owner_of: the op that each node of the float graph belongs to.
    """
    ops: dict[str, str] = {}
    for node in graph.in_order():
        plain = node.name.removeprefix(QUANTIZED_PREFIX) if is_quantized(node) else node.name
        if plain in owner_of:
            ops[node.name] = owner_of[plain]
    for node in graph.in_order():
        if node.operator == QUANTIZE_OPERATOR:
            owner = next((ops[reader.name] for reader in graph.readers.get(node.index, ()) if reader.name in ops), None)
        elif node.operator == DEQUANTIZE_OPERATOR:
            writer = graph.nodes.get(node.inputs[0][0])
            owner = ops.get(writer.name) if writer is not None else None
        else:
            continue
        if owner is not None:
            ops[node.name] = owner
    return ops


def precisions(graph: Graph, ops: Iterable[str]) -> dict[str, str]:
    """Return how each op runs; ops that are missing are left out."""
    precision_of = {}
    for op in ops:
        if f"{QUANTIZED_PREFIX}{op}" in graph.by_name:
            precision_of[op] = "int8" if is_quantized(graph.by_name[f"{QUANTIZED_PREFIX}{op}"]) else "fp32"
        elif op in graph.by_name:
            precision_of[op] = "fp32"
    return precision_of


# Quantile of the runs that counts: low, because other processes only slow a run down. Judgement.
QUANTILE = 0.25
# Fewest and most runs, and seconds after which no other run starts. Judgement.
RUNS = (5, 40)
SECONDS = 0.2


def op_seconds(builder: Builder, network: Network, feed: Feed, threads: int) -> dict[str, float]:
    """Return the seconds of each op and its followers in a built network; "" holds the time outside all ops."""
    owner_of = owners(Graph(network.symbol), builder.owner_of)
    seconds = dict.fromkeys(["", *builder.by_name], 0.0)
    for node, node_time in node_seconds(network, feed, threads).items():
        seconds[owner_of.get(node, "")] += node_time
    return seconds


def seconds_by_kind(builder: Builder, feed: Feed) -> tuple[dict[str, float], float]:
    """Return the seconds of the nodes of each kind in one inference on one thread, and of all nodes together."""
    by_node = node_seconds(builder.network, feed, 1)
    seconds: dict[str, float] = defaultdict(float)
    for node in builder.graph.in_order():
        seconds[node.kind] += by_node.get(node.name, 0.0)
    return dict(seconds), sum(by_node.values())


def node_seconds(network: Network, feed: Feed, threads: int) -> dict[str, float]:
    """Return the seconds of each node in one inference that little else disturbs."""
    timer = _NodeTimer(network, feed, threads)
    runs: list[dict[str, float]] = []
    end = time.perf_counter() + SECONDS
    while len(runs) < RUNS[0] or (len(runs) < RUNS[1] and time.perf_counter() < end):
        runs.append(timer.run())
    return {name: float(np.quantile([run.get(name, 0.0) for run in runs], QUANTILE)) for name in runs[0]}


class _NodeTimer:
    """A bound network that reads the clock after each node."""

    def __init__(self, network: Network, feed: Feed, threads: int) -> None:
        self._mx = import_mxnet()
        self._clock: Callable[[], float] = time.thread_time if threads < 2 else time.perf_counter
        graph = Graph(network.symbol)
        self._owners = {output: node.name for node in graph.in_order() for output in graph.outputs(node)}
        self._session = Session(network.symbol, network.parameters, threads)
        self._feed = feed
        self._session.run(feed)  # the first run quantizes and reorders weights
        self._stamp = self._call = 0.0
        self._taken: dict[str, float] = {}
        self._session.executor.set_monitor_callback(self._note)

    def run(self) -> dict[str, float]:
        """Return the seconds of each node."""
        self._taken = {}
        readings = [call_in_worker(self._clock) for _ in range(5)]
        self._call = min(after - before for before, after in pairwise(readings))  # the cost of reading the clock
        self._stamp = readings[-1]
        self._session.run(self._feed)
        return self._taken

    def _note(self, name: bytes | str, handle: int) -> None:
        output = name.decode() if isinstance(name, bytes) else name
        array = self._mx.nd.NDArray(ctypes.cast(handle, self._mx.base.NDArrayHandle), writable=False)
        now = call_in_worker(self._clock, after=[array])
        owner = self._owners.get(output, output)
        if owner not in self._taken:  # the first of its outputs
            self._taken[owner] = max(now - self._stamp - self._call, 0.0)
        self._stamp = now


def time_model(model: ModelLike, data: Any, options: TimingOptions, beside: Builder | None = None) -> Timing:
    """Time each kernel, and the model end to end. Kernels get the names of the ops of `beside`, if it is given."""
    unmodified = load_network(model)
    network = Network(unmodified.symbol.get_backend_symbol(BACKEND), unmodified.args, unmodified.aux, unmodified.inputs)
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
    owner_of = owners(graph, beside.owner_of) if beside is not None else {}
    usual, together = statistics.median(latencies), sum(seconds.values())
    scale = usual / together if together else 1.0
    kernels = tuple(
        KernelTime(node.name, owner_of.get(node.name, ""), kernel_name(node), scale * seconds.get(node.name, 0.0))
        for node in graph.in_order()
    )
    if beside is not None:
        precision_of = precisions(graph, beside.by_name)
    else:
        precision_of = {node.name: "int8" if is_quantized(node) else "fp32" for node in graph.in_order()}
    how = f"ops: nodes run one by one, whose sum is {together / usual:.2f} of p50, scaled to p50"
    return Timing(kernels, tuple(latencies), count_samples(feed), options.threads, precision_of, how)
