"""Any model of MXNet run for its time: end to end, and node by node."""

from __future__ import annotations

import statistics
import time
from typing import Any

from quaver.adapters.base import TimingOptions
from quaver.adapters.batches import samples
from quaver.adapters.mxnet.build.quantizing import BACKEND, Builder
from quaver.adapters.mxnet.read.graph import Graph
from quaver.adapters.mxnet.read.intake import take_in
from quaver.adapters.mxnet.read.network import Network
from quaver.adapters.mxnet.run.session import Session
from quaver.adapters.mxnet.time.kernels import is_quantized, kernel_name, owners, precisions
from quaver.adapters.mxnet.time.profiling import node_seconds
from quaver.adapters.one_batch import one_batch
from quaver.introspection import KernelTime, Timing


def time_model(model: Any, data: Any, options: TimingOptions, beside: Builder | None = None) -> Timing:
    """Run a model for its time. Kernels carry the names of the ops of `beside`, the float model's, if it is given."""
    given = take_in(model)
    network = Network(given.symbol.get_backend_symbol(BACKEND), given.args, given.aux, given.inputs)
    feed = one_batch(data, network.inputs, options.batch)
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
    return Timing(kernels, tuple(latencies), samples(feed), options.threads, known, how)
