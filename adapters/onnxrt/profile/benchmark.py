"""Any ONNX model run for its time: each kernel by ONNX Runtime's profiler, and end to end without it."""

from __future__ import annotations

import json
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import onnx

from quaver.adapters.data import count_samples
from quaver.adapters.onnxrt.build.builder import Builder
from quaver.adapters.onnxrt.profile.kernels import INTEGER_KERNELS, integer_nodes, plain_name
from quaver.adapters.onnxrt.profile.op_profile import KERNEL, kernel_owners
from quaver.adapters.onnxrt.run import session as sessions
from quaver.adapters.options import TimingOptions
from quaver.adapters.samples import make_batch
from quaver.errors import ModelError
from quaver.files.temporary import temporary_folder
from quaver.introspection import KernelTime, Timing
from quaver.types import Feed, ModelLike, PlainDict

# Inferences with and without the profiler go in turns, so that a busy machine is busy for both. With several threads a
# turn takes more of them: those of the other session are awake for a while.
INTERLEAVED_RUNS = 5
# The event that holds all kernels of an inference.
EXECUTE_EVENT = "SequentialExecutor::Execute"
# What noting one kernel takes the profiler, at most, in seconds.
MAX_PROFILER_SECONDS = 5e-6


def time_model(model: ModelLike, data: Any, options: TimingOptions, beside: Builder | None = None) -> Timing:
    """Run a model for its time. Kernels carry the names of the ops of `beside`, the float model's, if it is given."""
    source = _source(model)
    with temporary_folder() as folder:
        path = folder / "optimised.onnx"
        chosen = sessions.options(options.threads)
        chosen.enable_profiling = True
        chosen.profile_file_prefix = str(folder / "profile")
        chosen.optimized_model_filepath = str(path)
        profiled, plain = sessions.create(source, chosen), sessions.create(source, sessions.options(options.threads))
        feed = make_batch(data, sessions.input_specs(plain), options.batch)
        latencies, slowed = _interleave(plain, profiled, feed, options)
        events = json.loads(Path(profiled.end_profiling()).read_text(encoding="utf-8"))
        optimised = onnx.load_model(path, load_external_data=False)
    owner_of = kernel_owners(beside, optimised) if beside is not None else {}
    latency = statistics.median(latencies)
    runs, calls, kinds = _profiled(events, slowed)
    kernels = _kernels(runs, calls, kinds, owner_of, latency)
    noted = statistics.median(sum(run.values()) for run in runs) / latency
    how = f"ops: ONNX Runtime's profile, whose own sum is {noted:.2f} of p50, scaled to p50 less the call"
    return Timing(
        kernels,
        tuple(latencies),
        count_samples(feed),
        options.threads,
        _precisions(kernels, integer_nodes(optimised)),
        how,
    )


def _interleave(plain: Any, profiled: Any, feed: Feed, options: TimingOptions) -> tuple[list[float], list[float]]:
    """Seconds of each inference, without the profiler and with it."""
    for session in (plain, profiled):
        for _ in range(max(options.warmup, 1)):
            session.run(None, feed)
    latencies: list[float] = []
    slowed: list[float] = []
    alone = options.threads == 1
    while len(latencies) < options.runs:
        turn = 1 if alone else min(INTERLEAVED_RUNS, options.runs - len(latencies))
        if not alone:
            plain.run(None, feed)
        for session, taken in ((plain, latencies), (profiled, slowed)):
            for _ in range(turn):
                start = time.perf_counter()
                session.run(None, feed)
                taken.append(time.perf_counter() - start)
    return latencies, slowed


def _kernels(
    runs: list[dict[str, float]], calls: list[float], kinds: dict[str, str], owner_of: Mapping[str, str], latency: float
) -> tuple[KernelTime, ...]:
    """Seconds of each kernel: its mean part of all kernels in the profiled inferences, of what they take without it.

    So kernels add up to an inference less its call, also on a busy machine. Noting a kernel takes the profiler the same
    time for each, which counts for small ones: at most what the shortest kernel takes.
    """
    noting = min(
        [MAX_PROFILER_SECONDS, *(statistics.median(run.get(node, 0.0) for run in runs) for node in kinds)], default=0.0
    )
    parts: dict[str, list[float]] = {node: [] for node in kinds}
    for run in runs:
        taken = {node: max(run.get(node, 0.0) - noting, 0.0) for node in kinds}
        whole = sum(taken.values()) or 1.0
        for node, seconds in taken.items():
            parts[node].append(seconds / whole)
    together = latency - min(statistics.median(calls), latency / 2)
    return tuple(
        KernelTime(plain_name(node), owner_of.get(node, ""), kind, together * statistics.fmean(parts[node]))
        for node, kind in kinds.items()
    )


def _profiled(
    events: list[PlainDict], slowed: list[float]
) -> tuple[list[dict[str, float]], list[float], dict[str, str]]:
    """Of each counted inference: seconds of each kernel, and of all that is not executing; and what the kernels are."""
    runs: list[dict[str, float]] = []
    executing: list[float] = []
    kinds: dict[str, str] = {}
    current: dict[str, float] = defaultdict(float)
    inner = 0.0
    for event in events:
        name = event.get("name", "")
        if event.get("cat") == "Node" and name.endswith(KERNEL):
            node = name.removesuffix(KERNEL)
            kinds.setdefault(node, event.get("args", {}).get("op_name", ""))
            current[node] += event["dur"] * 1e-6
        elif name == EXECUTE_EVENT:
            inner = event["dur"] * 1e-6
        elif name == "model_run":
            runs.append(current)
            executing.append(inner or event["dur"] * 1e-6)
            current, inner = defaultdict(float), 0.0
    count = len(slowed)  # those before warmed up
    calls = [max(taken - inside, 0.0) for taken, inside in zip(slowed, executing[-count:], strict=True)]
    return runs[-count:], calls, kinds


def _precisions(kernels: tuple[KernelTime, ...], moving: Collection[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    carrying = set(map(plain_name, moving))
    for kernel in kernels:
        if kernel.op and kernel.kernel not in ("QuantizeLinear", "DequantizeLinear"):
            in_integers = kernel.kernel in INTEGER_KERNELS or kernel.name in carrying
            found[kernel.op] = "int8" if in_integers else found.get(kernel.op, "fp32")
    return found


def _source(model: ModelLike) -> bytes | str:
    if isinstance(model, bytes | bytearray | memoryview):
        return bytes(model)
    if isinstance(model, onnx.ModelProto):
        return bytes(model.SerializeToString())
    path = str(os.fspath(model))
    if not Path(path).is_file():
        raise ModelError(f"no model file at {path!r}")
    return path
