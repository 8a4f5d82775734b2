"""Where the time goes: seconds of each op in one configuration.

LiteRT shows no profile to Python. Each operator is timed as a model of its own, on the values it gets in the whole
model, and what calling an interpreter costs is taken off.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict

from quaver.adapters.batches import Feed
from quaver.adapters.litert.alone import Alone, Whole, alone
from quaver.adapters.litert.graph import Graph
from quaver.adapters.litert.quantizing import Builder
from quaver.errors import BuildError
from quaver.ops import QuantConfig

# How long each operator is run, and how often at least and at most.
SECONDS = 0.004
RUNS = (7, 60)


def op_seconds(
    builder: Builder, inputs: list[str], config: QuantConfig | None, feed: Feed, threads: int
) -> dict[str, float]:
    """Median seconds of each op. Operators that belong to no op are summed up under the empty name.

    Quantizing a tensor belongs to the op that reads it, dequantizing to the op that wrote it.
    """
    whole = Whole(builder.build(config), inputs, threads)
    whole.invoke(feed)
    graph = whole.graph
    owners = _owners(builder, graph)
    times: dict[int, float] = {}
    for op in graph.operators:
        tensors = [tensor for tensor in (*op.inputs, *op.outputs) if tensor >= 0 and not graph.is_constant(tensor)]
        shapes = {name: whole.shape(name) for name in map(graph.tensor_name, tensors) if whole.has(name)}
        try:
            part = alone(graph, op.index, shapes, threads)
            times[op.index] = _seconds(part, {name: whole.raw(name) for name in part.inputs})
        except (BuildError, RuntimeError, ValueError):
            continue  # control flow does not run by itself
    call = min(times.values(), default=0.0)
    seconds: dict[str, float] = dict.fromkeys(["", *builder.by_name], 0.0)
    for index, taken in times.items():
        seconds[owners.get(index, "")] += taken - call
    return seconds


def _seconds(part: Alone, feed: Feed) -> float:
    part.session.run(feed)
    invoke, times = part.session.interpreter.invoke, list[float]()
    end = time.perf_counter() + SECONDS
    while len(times) < RUNS[0] or (len(times) < RUNS[1] and time.perf_counter() < end):
        start = time.perf_counter()
        invoke()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def _owners(builder: Builder, graph: Graph) -> dict[int, str]:
    """For each operator of a built model the op it belongs to."""
    outputs = {builder.output(name): name for name in builder.by_name}
    owners = {}
    for op in graph.operators:
        for tensor in op.outputs:
            if graph.tensor_name(tensor) in outputs and op.kind not in ("QUANTIZE", "DEQUANTIZE"):
                owners[op.index] = outputs[graph.tensor_name(tensor)]
    added = defaultdict(str)
    for op in graph.operators:
        if op.kind == "DEQUANTIZE":
            added[op.index] = owners.get(graph.writers.get(op.inputs[0], -1), "")
        elif op.kind == "QUANTIZE":
            readers = (owners[reader] for reader in graph.readers.get(op.outputs[0], ()) if reader in owners)
            added[op.index] = next(readers, "")
    return owners | added
