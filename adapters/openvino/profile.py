"""Times of kernels, ops and models in OpenVINO, from its own profiling information."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from quaver.adapters.data import count_samples
from quaver.adapters.onnxrt.build.builder import Builder
from quaver.adapters.onnxrt.profile.benchmark import INTERLEAVED_RUNS
from quaver.adapters.onnxrt.profile.op_profile import MAX_RUNS, MAX_SECONDS, MIN_RUNS, QUANTILE
from quaver.adapters.openvino.execution_graph import (
    Kernel,
    executed_precisions,
    find,
    kernel_owners,
    kernels_of,
)
from quaver.adapters.openvino.session import OpenVinoSession, input_specs
from quaver.adapters.options import TimingOptions
from quaver.adapters.samples import make_batch
from quaver.introspection import KernelTime, Timing
from quaver.types import CalibrationData, Feed

Seconds = dict[str, float]


def op_seconds(builder: Builder, session: OpenVinoSession, feed: Feed) -> Seconds:
    """Return the seconds of each op in one inference; kernels of no op are under the empty name."""
    owners = kernel_owners(builder, kernels_of(session.compiled))
    lookups = {unit.op.name for unit in builder.units if unit.is_embedding}
    names = ["", *(unit.op.name for unit in builder.units)]
    by_op = [
        _summed(run, {kernel: op for kernel, op in owners.items() if op not in lookups}) for run in _runs(session, feed)
    ]
    return {name: _quantile([run.get(name, 0.0) for run in by_op]) for name in names}


def seconds_by_kind(
    builder: Builder, session: OpenVinoSession, feed: Feed, kinds: Mapping[int, str]
) -> tuple[Seconds, float]:
    """Return the seconds of each kind in one inference, and of all kernels; `kinds` as in `Runtime`."""
    kernels = kernels_of(session.compiled)
    owners = kernel_owners(builder, kernels)
    nodes = builder.graph.nodes
    by_name = {name: kind for index, kind in kinds.items() for name in (nodes[index].name, *nodes[index].output)}
    kind_of = {
        kernel.name: kind for kernel in kernels if kernel.name not in owners and (kind := _kind(kernel, by_name))
    }
    runs = _runs(session, feed)
    by_kind = [_summed(run, kind_of) for run in runs]
    seconds = {kind: _quantile([run.get(kind, 0.0) for run in by_kind]) for kind in dict.fromkeys(kind_of.values())}
    return seconds, _quantile([sum(run.values()) for run in runs])


def _kind(kernel: Kernel, by_name: Mapping[str, str]) -> str | None:
    return next((kind for name in kernel.origins if (kind := find(name, by_name)) is not None), None)


def time_sessions(
    plain: OpenVinoSession,
    profiled: OpenVinoSession,
    data: CalibrationData,
    options: TimingOptions,
    float_builder: Builder | None,
) -> Timing:
    """Time a model that is open twice, without and with profiling.

    Profiling slows a model down, so the times of kernels are scaled: they add up to the median without it.
    """
    feed = make_batch(data, input_specs(plain), options.batch)
    for session in (plain, profiled):
        for _ in range(max(options.warmup, 1)):
            session.run(None, feed)
    latencies: list[float] = []
    runs: list[Seconds] = []
    while len(latencies) < options.runs:
        for _ in range(min(INTERLEAVED_RUNS, options.runs - len(latencies))):
            start = time.perf_counter()
            plain.run(None, feed)
            latencies.append(time.perf_counter() - start)
        for _ in range(INTERLEAVED_RUNS):
            profiled.run(None, feed)
            runs.append(profiled.kernel_seconds)
    kernels = kernels_of(profiled.compiled)
    owners = {} if float_builder is None else kernel_owners(float_builder, kernels)
    precisions = {} if float_builder is None else executed_precisions(float_builder, kernels)
    latency, measured = statistics.median(latencies), statistics.median(sum(run.values()) for run in runs)
    scale = latency / measured if measured > 0 else 0.0
    times = tuple(
        KernelTime(kernel.name, owners.get(kernel.name, ""), kernel.kind, scale * statistics.fmean(seconds))
        for kernel in kernels
        if sum(seconds := [run.get(kernel.name, 0.0) for run in runs]) > 0
    )
    method = f"ops: OpenVINO's profiling information, whose sum is {measured / latency:.2f} of p50, scaled to p50"
    return Timing(
        times,
        tuple(latencies),
        count_samples(feed),
        options.threads,
        {name: str(precision) for name, precision in precisions.items()},
        method,
    )


def _runs(session: OpenVinoSession, feed: Feed) -> list[Seconds]:
    """Return the seconds of each kernel in several warm inferences."""
    session.run(None, feed)
    runs: list[Seconds] = []
    begin = time.perf_counter(), time.process_time()
    for count in range(MAX_RUNS):
        passed = min(time.perf_counter() - begin[0], time.process_time() - begin[1])
        if count >= MIN_RUNS and passed >= MAX_SECONDS:
            break
        session.run(None, feed)
        runs.append(session.kernel_seconds)
    return runs


def _summed(run: Seconds, owners: Mapping[str, str]) -> Seconds:
    """Return the seconds of a run by the owner of each kernel; "" for those without one."""
    summed: Seconds = defaultdict(float)
    for kernel, seconds in run.items():
        summed[owners.get(kernel, "")] += seconds
    return summed


def _quantile(seconds: list[float]) -> float:
    return float(np.quantile(seconds, QUANTILE)) if seconds else 0.0
