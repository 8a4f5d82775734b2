"""Time each op of a configuration or of a quantized file."""

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
from quaver.adapters.litert.inspect.matching import find_ops, is_quantized, parameters_of
from quaver.adapters.litert.load.graph import Graph, Operator
from quaver.adapters.litert.load.model_file import load_tflite
from quaver.adapters.litert.run.calibrator import InspectableModel
from quaver.adapters.litert.run.session import Session, float_specs, quantize_inputs
from quaver.adapters.options import TimingOptions
from quaver.adapters.samples import make_batch
from quaver.errors import BuildError
from quaver.introspection import KernelTime, Timing
from quaver.ops import FP32, INT8
from quaver.types import Feed, ModelLike

Clock = Callable[[], float]

# Most segments that a graph is cut into; fewest and most rounds that each is run; seconds for all of them. Judgement.
MAX_SEGMENTS = 6
ROUNDS = (5, 40)
SECONDS = 3.0
HOW = "ops: estimates; segments of the graph are timed in place, and divided in proportion to each op's time by itself"
# Seconds that an operator takes at least, after the cost of calling an interpreter is subtracted. Judgement.
MIN_SECONDS = 1e-7


@dataclass(frozen=True, slots=True)
class TimingEffort:
    """How much to measure.

    Attributes:
        warmup: inferences before the timed ones.
        runs: timed inferences.
        seconds: approximate time for all segments together.
    """

    warmup: int
    runs: int
    seconds: float


def time_model(model: ModelLike, data: Any, options: TimingOptions, beside: Builder | None = None) -> Timing:
    """Time each kernel, and the model end to end. Kernels get the names of the ops of `beside`, if it is given."""
    graph = Graph(load_tflite(model))
    feed = make_batch(data, float_specs(graph), options.batch)
    effort = TimingEffort(options.warmup, options.runs, SECONDS)
    latencies, seconds = measure(graph, quantize_inputs(graph, feed), options.threads, effort)
    belongs = owners(graph, beside)
    kernels = [
        KernelTime(name, belongs.get(op.index, ""), kernel_name(graph, op), seconds[op.index])
        for op, name in zip(graph.operators, graph.names, strict=True)
    ]
    return Timing(
        tuple(kernels), tuple(latencies), count_samples(feed), options.threads, precisions(graph, beside), HOW
    )


def steady_clock(threads: int) -> Clock:
    """Return the clock of this thread where one thread does all the work: other processes do not disturb it."""
    return time.thread_time if threads < 2 else time.perf_counter


def measure(
    graph: Graph, feed: Feed, threads: int, effort: TimingEffort, wall: Clock = time.perf_counter
) -> tuple[list[float], list[float]]:
    """Return the seconds of each inference by the wall clock, and of each operator in the median one."""
    names = [spec.name for spec in graph.input_specs()]
    plain = Session(graph.content, names, threads)
    plain.run(feed)
    for _ in range(effort.warmup):
        plain.interpreter.invoke()
    latencies = [_seconds(plain, wall) for _ in range(effort.runs)]
    usual = statistics.median(latencies)
    model = InspectableModel(graph, names, threads)
    model.invoke(feed)
    clock = steady_clock(threads)
    rounds = int(min(max(effort.seconds / (3 * MAX_SEGMENTS * usual), ROUNDS[0]), ROUNDS[1]))
    segment_count = int(min(max(effort.seconds / (3 * rounds * usual), 1), MAX_SEGMENTS))
    empty = _empty(threads)
    ends = [min(_seconds(empty.session, clock) for _ in range(9)) / usual]
    own_seconds: list[list[float | None]] = []
    for start, stop in _segments(_estimate_seconds(graph, model, threads, clock), segment_count):
        parts = [_operator_model(graph, index, model, threads) for index in range(start, stop)]
        front = _prefix(graph, stop, model, names, feed, threads) if stop < len(graph.operators) else None
        end, part_seconds = _measure_interleaved(plain, front, [*parts, empty], rounds, clock)
        call = part_seconds.pop() or 0.0
        own_seconds.append([None if own is None else max(own - call, MIN_SECONDS) for own in part_seconds])
        ends.append(max(end, ends[-1]))
    stretches = zip(ends, ends[1:], own_seconds, strict=False)
    return latencies, [
        own for start, end, part_seconds in stretches for own in _divide_segment((end - start) * usual, part_seconds)
    ]


@dataclass(frozen=True, slots=True)
class _OperatorModel:
    """One operator as a model of its own, with its inputs."""

    session: Session
    names: Sequence[str]
    feed: Feed

    def seconds(self, clock: Clock) -> float:
        """Run it twice, and return the mean: first with weights and inputs out of the cache, then with both in it.

        In a whole model weights are out of the cache, and inputs are in it.
        """
        for index, name in zip(self.session.slots, self.names, strict=True):
            self.session.interpreter.set_tensor(index, self.feed[name])
        for index in self.session.outputs:
            self.session.interpreter.get_tensor(index)
        return (_seconds(self.session, clock) + _seconds(self.session, clock)) / 2


def _operator_model(graph: Graph, index: int, model: InspectableModel, threads: int) -> _OperatorModel | None:
    """Return one operator as a model; None for control flow, which does not run by itself."""
    try:
        content, names = pieces.one(graph, index, model.shapes())
        part = _OperatorModel(Session(content, names, threads), names, {name: model.raw(name) for name in names})
        part.session.run(part.feed)
    except (BuildError, RuntimeError, ValueError):
        return None
    return part


def _empty(threads: int) -> _OperatorModel:
    """Return a model that does next to nothing."""
    part = _OperatorModel(Session(pieces.trivial_model(), ["in"], threads), ["in"], {"in": np.zeros(1, np.float32)})
    part.session.run(part.feed)
    return part


def _estimate_seconds(graph: Graph, model: InspectableModel, threads: int, clock: Clock) -> list[float | None]:
    """Return rough times of the operators, to cut the graph by; None for one that does not run by itself."""
    parts = (_operator_model(graph, op.index, model, threads) for op in graph.operators)
    return [None if part is None else min(_seconds(part.session, clock) for _ in range(3)) for part in parts]


def _segments(guesses: Sequence[float | None], segment_count: int) -> list[tuple[int, int]]:
    """Cut the graph into segments that take about the same time; a graph with control flow stays whole."""
    sums = list(accumulate(guess for guess in guesses if guess is not None))
    if len(sums) < len(guesses):
        return [(0, len(guesses))]
    ends = [
        next(at for at, sofar in enumerate(sums, 1) if sofar >= sums[-1] * k / segment_count)
        for k in range(1, segment_count)
    ]
    ends = [*(end for end in dict.fromkeys(ends) if end < len(sums)), len(sums)]
    return list(zip([0, *ends[:-1]], ends, strict=True))


def _prefix(
    graph: Graph, stop: int, model: InspectableModel, names: Sequence[str], feed: Feed, threads: int
) -> Session:
    """Return the model up to an operator."""
    session = Session(pieces.first_operators(graph, stop, model.shapes()), names, threads)
    session.run(feed)
    return session


def _measure_interleaved(
    plain: Session, front: Session | None, parts: Sequence[_OperatorModel | None], rounds: int, clock: Clock
) -> tuple[float, list[float | None]]:
    """Return the prefix's time as a part of the whole model's, and the seconds of each operator by itself."""
    ratios: list[float] = []
    own_seconds: list[list[float]] = [[] for _ in parts]
    for _ in range(rounds):
        whole = min(_seconds(plain, clock) for _ in range(2))
        if front is not None:
            ratios.append(min(_seconds(front, clock) for _ in range(2)) / whole)
            _seconds(plain, clock)
        for part, times in zip(parts, own_seconds, strict=True):
            if part is not None:
                times.append(part.seconds(clock))
    return statistics.median(ratios) if ratios else 1.0, [
        statistics.median(times) if times else None for times in own_seconds
    ]


def _divide_segment(seconds: float, own_seconds: Sequence[float | None]) -> list[float]:
    """Divide a segment's time among its operators. Those that do not run by themselves share what is left."""
    measured = sum(own for own in own_seconds if own is not None)
    unmeasured = sum(own is None for own in own_seconds)
    if unmeasured:
        share = max(seconds - measured, 0.0) / unmeasured
        return [share if own is None else own for own in own_seconds]
    return [max(seconds, 0.0) * own / measured if own is not None and measured else 0.0 for own in own_seconds]


def _seconds(session: Session, clock: Clock) -> float:
    invoke = session.interpreter.invoke
    start = clock()
    invoke()
    return clock() - start


# Ops are timed for every configuration that a strategy asks about, so a second must do. Judgement.
OP_EFFORT = TimingEffort(warmup=2, runs=10, seconds=1.0)


def op_seconds(builder: Builder, graph: Graph, feed: Feed, threads: int) -> dict[str, float]:
    """Return the seconds of each op in a model of the builder's; "" holds the time outside all ops.

    They are processor time on one thread, because fp32 and int8 are compared on a machine that may be busy.
    """
    _, operator_seconds = measure(graph, quantize_inputs(graph, feed), threads, OP_EFFORT, steady_clock(threads))
    belongs = owners(graph, builder)
    seconds: dict[str, float] = dict.fromkeys(["", *builder.by_name], 0.0)
    for index, value in enumerate(operator_seconds):
        seconds[belongs.get(index, "")] += value
    return seconds


def seconds_by_kind(graph: Graph, feed: Feed, kinds: Mapping[int, str]) -> tuple[dict[str, float], float]:
    """Return the seconds of operators of each kind in one inference on one thread, and of all operators together.

    Args:
        graph: the model.
        feed: its inputs.
        kinds: the kind of each operator of interest, by its index.
    """
    _, operator_seconds = measure(graph, quantize_inputs(graph, feed), 1, OP_EFFORT, steady_clock(1))
    seconds: dict[str, float] = defaultdict(float)
    for index, kind in kinds.items():
        seconds[kind] += operator_seconds[index]
    return dict(seconds), sum(operator_seconds)


def kernel_name(graph: Graph, op: Operator) -> str:
    """Return the operator's type, and its number type if that is not float."""
    if op.kind in ("QUANTIZE", "DEQUANTIZE"):
        return op.kind
    return f"{op.kind} int8" if is_quantized(graph, op) else op.kind


def owners(graph: Graph, builder: Builder | None) -> dict[int, str]:
    """Return the op that each operator belongs to.

    Quantizing a tensor belongs to the op that reads it, dequantizing to the op that wrote it.
    """
    if builder is None:
        return {}
    ops = {op.index: name for name, op in find_ops(builder, graph).items()}
    for op in graph.operators:
        if op.kind == "DEQUANTIZE":
            owner = ops.get(graph.writers.get(op.inputs[0], -1))
        elif op.kind == "QUANTIZE":
            readers = graph.readers.get(op.outputs[0], ())
            owner = next((ops[reader] for reader in readers if reader in ops), None)
        else:
            continue
        if owner is not None:
            ops[op.index] = owner
    return ops


def precisions(graph: Graph, builder: Builder | None) -> dict[str, str]:
    """Return how each op runs; or each operator, if there is no float model to name them."""
    if builder is not None:
        return {name: _precision(graph, op) for name, op in find_ops(builder, graph).items()}
    return {
        name: _precision(graph, op)
        for op, name in zip(graph.operators, graph.names, strict=True)
        if op.kind not in ("QUANTIZE", "DEQUANTIZE") and op.outputs and _is_real(graph, op.outputs[0])
    }


def _precision(graph: Graph, op: Operator) -> str:
    return str(INT8 if is_quantized(graph, op) else FP32)


def _is_real(graph: Graph, tensor: int) -> bool:
    """Return True if a tensor holds real numbers, not shapes or indices."""
    return graph.is_float(tensor) or parameters_of(graph, tensor) is not None
