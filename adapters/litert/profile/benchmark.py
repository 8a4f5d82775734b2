"""Where the time goes: seconds of each op in one configuration, or in a quantized file."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from quaver.adapters.data import count_samples
from quaver.adapters.litert.build import submodel as pieces
from quaver.adapters.litert.build.builder import Builder
from quaver.adapters.litert.load.graph import Graph
from quaver.adapters.litert.load.model_file import any_lite
from quaver.adapters.litert.profile.kernels import kernel_name, owners, precisions
from quaver.adapters.litert.run.calibrator import Whole
from quaver.adapters.litert.run.session import Session, as_taken, float_specs
from quaver.adapters.options import TimingOptions
from quaver.adapters.samples import make_batch
from quaver.errors import BuildError
from quaver.introspection import KernelTime, Timing
from quaver.types import Feed, ModelLike

Clock = Callable[[], float]

# Into how many stretches a graph is cut at most, how often each is run at least and at most, and for how long.
STRETCHES = 6
ROUNDS = (5, 40)
SECONDS = 3.0
HOW = (
    "ops: estimates; stretches of the graph are timed in place, and divided by what each op takes as a model of its own"
)
# No operator takes less, when what calling an interpreter costs is taken off.
LEAST = 1e-7


@dataclass(frozen=True, slots=True)
class Effort:
    """How much to measure.

    Attributes:
        warmup: inferences that do not count.
        runs: inferences that do.
        seconds: for all stretches together, about.
    """

    warmup: int
    runs: int
    seconds: float


def time_model(model: ModelLike, data: Any, options: TimingOptions, beside: Builder | None = None) -> Timing:
    """Run a model for its time. Kernels carry the names of the ops of `beside`, the float model's, if it is given."""
    graph = Graph(any_lite(model))
    feed = make_batch(data, float_specs(graph), options.batch)
    effort = Effort(options.warmup, options.runs, SECONDS)
    latencies, seconds = measure(graph, as_taken(graph, feed), options.threads, effort)
    belongs = owners(graph, beside)
    kernels = [
        KernelTime(name, belongs.get(op.index, ""), kernel_name(graph, op), seconds[op.index])
        for op, name in zip(graph.operators, graph.names, strict=True)
    ]
    return Timing(
        tuple(kernels), tuple(latencies), count_samples(feed), options.threads, precisions(graph, beside), HOW
    )


def steady(threads: int) -> Clock:
    """The processor's time, where one thread does all: what else runs on the machine does not disturb it."""
    return time.thread_time if threads < 2 else time.perf_counter


def measure(
    graph: Graph, feed: Feed, threads: int, effort: Effort, wall: Clock = time.perf_counter
) -> tuple[list[float], list[float]]:
    """Seconds of each inference by the clock on the wall, and of each operator in the usual one."""
    names = [spec.name for spec in graph.input_specs()]
    plain = Session(graph.content, names, threads)
    plain.run(feed)
    for _ in range(effort.warmup):
        plain.interpreter.invoke()
    latencies = [_seconds(plain, wall) for _ in range(effort.runs)]
    usual = statistics.median(latencies)
    kept = Whole(graph, names, threads)
    kept.invoke(feed)
    clock = steady(threads)
    rounds = int(min(max(effort.seconds / (3 * STRETCHES * usual), ROUNDS[0]), ROUNDS[1]))
    many = int(min(max(effort.seconds / (3 * rounds * usual), 1), STRETCHES))
    empty = _empty(threads)
    ends = [min(_seconds(empty.session, clock) for _ in range(9)) / usual]
    alone: list[list[float | None]] = []
    for start, stop in _stretches(_guesses(graph, kept, threads, clock), many):
        parts = [_part(graph, index, kept, threads) for index in range(start, stop)]
        front = _front(graph, stop, kept, names, feed, threads) if stop < len(graph.operators) else None
        end, taken = _in_turns(plain, front, [*parts, empty], rounds, clock)
        call = taken.pop() or 0.0
        alone.append([None if one is None else max(one - call, LEAST) for one in taken])
        ends.append(max(end, ends[-1]))
    stretches = zip(ends, ends[1:], alone, strict=False)
    return latencies, [one for start, end, taken in stretches for one in _divided((end - start) * usual, taken)]


@dataclass(frozen=True, slots=True)
class _Part:
    """One operator as a model of its own, with what it is given."""

    session: Session
    names: Sequence[str]
    feed: Feed

    def seconds(self, clock: Clock) -> float:
        """Run it twice, and take the mean: with weights and memory both out of the cache, and both in it.

        In a whole model weights are out of it, and what is read and written is in.
        """
        for index, name in zip(self.session.slots, self.names, strict=True):
            self.session.interpreter.set_tensor(index, self.feed[name])
        for index in self.session.outputs:
            self.session.interpreter.get_tensor(index)
        return (_seconds(self.session, clock) + _seconds(self.session, clock)) / 2


def _part(graph: Graph, index: int, kept: Whole, threads: int) -> _Part | None:
    """None for control flow, which does not run by itself."""
    try:
        content, names = pieces.one(graph, index, kept.shapes())
        part = _Part(Session(content, names, threads), names, {name: kept.raw(name) for name in names})
        part.session.run(part.feed)
    except (BuildError, RuntimeError, ValueError):
        return None
    return part


def _empty(threads: int) -> _Part:
    """A model that does next to nothing."""
    part = _Part(Session(pieces.next_to_nothing(), ["in"], threads), ["in"], {"in": np.zeros(1, np.float32)})
    part.session.run(part.feed)
    return part


def _guesses(graph: Graph, kept: Whole, threads: int, clock: Clock) -> list[float | None]:
    """About what each operator takes, to cut the graph by; None for what does not run by itself."""
    parts = (_part(graph, op.index, kept, threads) for op in graph.operators)
    return [None if part is None else min(_seconds(part.session, clock) for _ in range(3)) for part in parts]


def _stretches(guesses: Sequence[float | None], many: int) -> list[tuple[int, int]]:
    """Cut the graph so that stretches take about the same time; one with control flow stays whole."""
    sums = list(accumulate(guess for guess in guesses if guess is not None))
    if len(sums) < len(guesses):
        return [(0, len(guesses))]
    ends = [next(at for at, sofar in enumerate(sums, 1) if sofar >= sums[-1] * k / many) for k in range(1, many)]
    ends = [*(end for end in dict.fromkeys(ends) if end < len(sums)), len(sums)]
    return list(zip([0, *ends[:-1]], ends, strict=True))


def _front(graph: Graph, stop: int, kept: Whole, names: Sequence[str], feed: Feed, threads: int) -> Session:
    """The model up to an operator."""
    session = Session(pieces.beginning(graph, stop, kept.shapes()), names, threads)
    session.run(feed)
    return session


def _in_turns(
    plain: Session, front: Session | None, parts: Sequence[_Part | None], rounds: int, clock: Clock
) -> tuple[float, list[float | None]]:
    """What the front takes as a part of the whole, and the seconds of each operator by itself."""
    ratios: list[float] = []
    alone: list[list[float]] = [[] for _ in parts]
    for _ in range(rounds):
        whole = min(_seconds(plain, clock) for _ in range(2))
        if front is not None:
            ratios.append(min(_seconds(front, clock) for _ in range(2)) / whole)
            _seconds(plain, clock)
        for part, taken in zip(parts, alone, strict=True):
            if part is not None:
                taken.append(part.seconds(clock))
    return statistics.median(ratios) if ratios else 1.0, [statistics.median(one) if one else None for one in alone]


def _divided(seconds: float, alone: Sequence[float | None]) -> list[float]:
    """What a stretch takes, divided among its operators. Those that do not run by themselves get what is left."""
    known = sum(one for one in alone if one is not None)
    unknown = sum(one is None for one in alone)
    if unknown:
        rest = max(seconds - known, 0.0) / unknown
        return [rest if one is None else one for one in alone]
    return [max(seconds, 0.0) * one / known if one is not None and known else 0.0 for one in alone]


def _seconds(session: Session, clock: Clock) -> float:
    invoke = session.interpreter.invoke
    start = clock()
    invoke()
    return clock() - start


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
