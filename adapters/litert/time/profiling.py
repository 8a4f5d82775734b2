"""Where the time goes: seconds of each op in one configuration, or in a quantized file."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from quaver.adapters.batches import Feed
from quaver.adapters.litert.build.quantizing import Builder
from quaver.adapters.litert.read.graph import Graph
from quaver.adapters.litert.run.feeding import as_taken
from quaver.adapters.litert.time.kernels import owners
from quaver.adapters.litert.time.timing import Effort, measure, steady

# Ops are timed for every configuration that a strategy asks about: a second is enough.
EFFORT = Effort(warmup=2, runs=10, seconds=1.0)


def op_seconds(builder: Builder, graph: Graph, feed: Feed, threads: int) -> dict[str, float]:
    """Seconds of each op in a model made from the builder's. What belongs to no op is under the empty name.

    They are taken by the processor's time where that can be: fp32 and int8 are compared, on a machine that may be busy.
    """
    _, taken = measure(graph, as_taken(graph, feed), threads, EFFORT, steady(threads))
    belongs = owners(graph, builder)
    seconds: dict[str, float] = dict.fromkeys(["", *builder.by_name], 0.0)
    for index, one in enumerate(taken):
        seconds[belongs.get(index, "")] += one
    return seconds


def seconds_by_kind(graph: Graph, feed: Feed, kinds: Mapping[int, str]) -> tuple[dict[str, float], float]:
    """Seconds of operators of each kind in one inference on one thread, and of all operators together.

    `kinds` names the operators of interest by their index.
    """
    _, taken = measure(graph, as_taken(graph, feed), 1, EFFORT, steady(1))
    seconds: dict[str, float] = defaultdict(float)
    for index, kind in kinds.items():
        seconds[kind] += taken[index]
    return dict(seconds), sum(taken)
