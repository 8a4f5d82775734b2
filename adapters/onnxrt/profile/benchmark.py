"""The benchmark: time any ONNX model end to end, and each kernel by ONNX Runtime's profiler."""

from __future__ import annotations

import json
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Collection, Mapping
from pathlib import Path

import onnx

from quaver.adapters.data import count_samples
from quaver.adapters.onnxrt.build.builder import Builder
from quaver.adapters.onnxrt.profile.kernels import INTEGER_KERNELS, integer_nodes, plain_name
from quaver.adapters.onnxrt.profile.op_profile import KERNEL_SUFFIX, kernel_owners
from quaver.adapters.onnxrt.run import session as sessions
from quaver.adapters.onnxrt.run.session import Session
from quaver.adapters.options import TimingOptions
from quaver.adapters.samples import make_batch
from quaver.errors import ModelError
from quaver.files.temporary import temporary_folder
from quaver.introspection import KernelTime, Timing
from quaver.types import CalibrationData, Feed, ModelLike, PlainDict

# Inferences with and without the profiler are interleaved, so that a busy machine is busy for both. With several
# threads this many of one kind follow each other, because the threads of the other session stay awake for a while.
INTERLEAVED_RUNS = 5
# The profiler event that spans all kernels of an inference.
EXECUTE_EVENT = "SequentialExecutor::Execute"
# Seconds that recording one kernel takes the profiler, at most. Judgement.
MAX_PROFILER_SECONDS = 5e-6


def time_model(
    model: ModelLike, data: CalibrationData, options: TimingOptions, float_builder: Builder | None = None
) -> Timing:
    """Time a model. With a `float_builder`, kernels carry the names of its ops."""
    source = source_of(model)
    with temporary_folder() as folder:
        path = folder / "optimised.onnx"
        profiling_options = sessions.options(options.threads)
        profiling_options.enable_profiling = True
        profiling_options.profile_file_prefix = str(folder / "profile")
        profiling_options.optimized_model_filepath = str(path)
        profiled, plain = (
            sessions.create(source, profiling_options),
            sessions.create(source, sessions.options(options.threads)),
        )
        feed = make_batch(data, sessions.input_specs(plain), options.batch)
        latencies, profiled_seconds = _interleave(plain, profiled, feed, options)
        events = json.loads(Path(profiled.end_profiling()).read_text(encoding="utf-8"))
        optimised = onnx.load_model(path, load_external_data=False)
    owner_of = kernel_owners(float_builder, optimised) if float_builder is not None else {}
    latency = statistics.median(latencies)
    runs, calls, kinds = _profiled(events, profiled_seconds)
    kernels = _kernels(runs, calls, kinds, owner_of, latency)
    profiled_share = statistics.median(sum(run.values()) for run in runs) / latency
    method = f"ops: ONNX Runtime's profile, whose own sum is {profiled_share:.2f} of p50, scaled to p50 less the call"
    return Timing(
        kernels,
        tuple(latencies),
        count_samples(feed),
        options.threads,
        _precisions(kernels, integer_nodes(optimised)),
        method,
    )


def _interleave(
    plain: Session, profiled: Session, feed: Feed, options: TimingOptions
) -> tuple[list[float], list[float]]:
    """Return the seconds of each inference, without the profiler and with it."""
    for session in (plain, profiled):
        for _ in range(max(options.warmup, 1)):
            session.run(None, feed)
    latencies: list[float] = []
    profiled_seconds: list[float] = []
    one_thread = options.threads == 1
    while len(latencies) < options.runs:
        count = 1 if one_thread else min(INTERLEAVED_RUNS, options.runs - len(latencies))
        if not one_thread:
            plain.run(None, feed)
        for session, seconds in ((plain, latencies), (profiled, profiled_seconds)):
            for _ in range(count):
                start = time.perf_counter()
                session.run(None, feed)
                seconds.append(time.perf_counter() - start)
    return latencies, profiled_seconds


def _kernels(
    runs: list[dict[str, float]], calls: list[float], kinds: dict[str, str], owner_of: Mapping[str, str], latency: float
) -> tuple[KernelTime, ...]:
    """Return the seconds of each kernel: its mean share of all kernels in profiled inferences, times what they take
    without.

    So kernels add up to an inference less its call, also on a busy machine. Recording a kernel takes the profiler the
    same
    time for each, which matters for small ones: at most what the shortest kernel takes.
    """
    recording = min(
        [MAX_PROFILER_SECONDS, *(statistics.median(run.get(node, 0.0) for run in runs) for node in kinds)], default=0.0
    )
    parts: dict[str, list[float]] = {node: [] for node in kinds}
    for run in runs:
        net_seconds = {node: max(run.get(node, 0.0) - recording, 0.0) for node in kinds}
        whole = sum(net_seconds.values()) or 1.0
        for node, seconds in net_seconds.items():
            parts[node].append(seconds / whole)
    total = latency - min(statistics.median(calls), latency / 2)
    return tuple(
        KernelTime(plain_name(node), owner_of.get(node, ""), kind, total * statistics.fmean(parts[node]))
        for node, kind in kinds.items()
    )


def _profiled(
    events: list[PlainDict], slowed: list[float]
) -> tuple[list[dict[str, float]], list[float], dict[str, str]]:
    """Return, for each counted inference, the seconds of each kernel and of its call; and the kind of each kernel."""
    runs: list[dict[str, float]] = []
    executing: list[float] = []
    kinds: dict[str, str] = {}
    current: dict[str, float] = defaultdict(float)
    executed = 0.0
    for event in events:
        name = event.get("name", "")
        if event.get("cat") == "Node" and name.endswith(KERNEL_SUFFIX):
            node = name.removesuffix(KERNEL_SUFFIX)
            kinds.setdefault(node, event.get("args", {}).get("op_name", ""))
            current[node] += event["dur"] * 1e-6
        elif name == EXECUTE_EVENT:
            executed = event["dur"] * 1e-6
        elif name == "model_run":
            runs.append(current)
            executing.append(executed or event["dur"] * 1e-6)
            current, executed = defaultdict(float), 0.0
    count = len(slowed)  # earlier inferences warmed up
    calls = [max(seconds - inside, 0.0) for seconds, inside in zip(slowed, executing[-count:], strict=True)]
    return runs[-count:], calls, kinds


def _precisions(kernels: tuple[KernelTime, ...], integer_names: Collection[str]) -> dict[str, str]:
    precisions: dict[str, str] = {}
    integer_kernels = set(map(plain_name, integer_names))
    for kernel in kernels:
        if kernel.op and kernel.kernel not in ("QuantizeLinear", "DequantizeLinear"):
            in_integers = kernel.kernel in INTEGER_KERNELS or kernel.name in integer_kernels
            precisions[kernel.op] = "int8" if in_integers else precisions.get(kernel.op, "fp32")
    return precisions


def source_of(model: ModelLike) -> bytes | str:
    """Return a model as bytes that hold all of it, or the path of its file."""
    if isinstance(model, bytes | bytearray | memoryview):
        return bytes(model)
    if isinstance(model, onnx.ModelProto):
        return bytes(model.SerializeToString())
    path = str(os.fspath(model))
    if not Path(path).is_file():
        raise ModelError(f"no model file at {path!r}")
    return path
