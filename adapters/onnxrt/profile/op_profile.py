"""The op profile: seconds of each op in one configuration, from ONNX Runtime's own profiler."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx

from quaver.adapters.onnxrt.build.builder import Builder
from quaver.adapters.onnxrt.build.dynamic_and_weight_only import DYNAMIC
from quaver.adapters.onnxrt.build.dynamic_and_weight_only import PARTS as BETWEEN_FLOATS
from quaver.adapters.onnxrt.build.integer_ops import PARTS
from quaver.adapters.onnxrt.load.graph import Graph
from quaver.adapters.onnxrt.profile.kernels import plain_name
from quaver.adapters.onnxrt.run import session as sessions
from quaver.adapters.onnxrt.run.model import OnnxModel
from quaver.files.temporary import temporary_folder
from quaver.types import Feed, PlainDict

KERNEL_SUFFIX = "_kernel_time"
# The part of the runs of an op that counts, the fastest ones: what slows a run down comes from outside. Their mean
# tells kernels apart that a single run does not, because the profiler counts whole microseconds. Judgement.
FAST_PART = 0.6
# The quantile of the sorted runs that counts. Judgement: what slows a run down comes from outside.
QUANTILE = 0.25
# Judgement: at least and at most this many runs, and no more after this many seconds of the processor.
MIN_RUNS, MAX_RUNS = 5, 60
MAX_SECONDS = 0.15


def op_seconds(builder: Builder, model: OnnxModel, feed: Feed, threads: int) -> dict[str, float]:
    """Return the seconds of each op of a built model; kernels of no op are under the empty name.

    Lookups are among the latter: they take next to nothing in either precision, and the profiler itself takes longer
    for
    the four kernels of the one than for the single kernel of the other. Their times would decide nothing.
    """
    events, optimised = profiled(model, feed, threads)
    return _undisturbed(_runs(events, _timed(builder, optimised)), builder)


def attribute_seconds(builder: Builder, kernels: Mapping[str, float], graph: bytes) -> dict[str, float]:
    """Return the seconds of each op, from the seconds of kernels on another machine and the graph they are in."""
    owner_of = _timed(builder, onnx.load_model_from_string(graph))
    op_seconds = dict.fromkeys(["", *(unit.op.name for unit in builder.units)], 0.0)
    for kernel, seconds in kernels.items():
        op_seconds[owner_of.get(kernel, "")] += seconds
    return op_seconds


def _timed(builder: Builder, optimised: onnx.ModelProto) -> dict[str, str]:
    """Return, by kernel, the op whose time it counts for."""
    lookups = {unit.op.name for unit in builder.units if unit.is_embedding}
    return {kernel: op for kernel, op in kernel_owners(builder, optimised).items() if op not in lookups}


def profiled(model: OnnxModel, feed: Feed, threads: int) -> tuple[list[PlainDict], onnx.ModelProto]:
    """Return the events of several inferences, the first of them cold, and the graph whose kernels they time."""
    source, constants = model.source()
    with temporary_folder() as folder:
        path = folder / "optimised.onnx"
        options = sessions.options(threads)
        options.enable_profiling = True
        options.profile_file_prefix = str(folder / "profile")
        options.optimized_model_filepath = str(path)
        session = sessions.create(source, options, constants)
        session.run(None, feed)
        begin = time.perf_counter(), time.process_time()
        for count in range(MAX_RUNS):
            passed = min(time.perf_counter() - begin[0], time.process_time() - begin[1])
            if count >= MIN_RUNS and passed >= MAX_SECONDS:
                break
            session.run(None, feed)
        events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
        return events, onnx.load_model(path, load_external_data=False)


def _undisturbed(runs: list[dict[str, float]], builder: Builder) -> dict[str, float]:
    warm = runs[1:] or runs
    names = ["", *(unit.op.name for unit in builder.units)]
    return {name: _fast_mean([run.get(name, 0.0) for run in warm]) for name in names}


def _fast_mean(seconds: list[float]) -> float:
    return float(np.mean(sorted(seconds)[: max(round(FAST_PART * len(seconds)), 1)]))


def _runs(events: list[PlainDict], owner_of: dict[str, str]) -> list[dict[str, float]]:
    """Sum up the kernels of each run by op. A run ends with the event of the session as a whole."""
    runs: list[dict[str, float]] = []
    current: dict[str, float] = defaultdict(float)
    for event in events:
        name = event.get("name", "")
        if event.get("cat") == "Node" and name.endswith(KERNEL_SUFFIX):
            current[owner_of.get(name.removesuffix(KERNEL_SUFFIX), "")] += event["dur"] * 1e-6
        elif name == "model_run":
            runs.append(current)
            current = defaultdict(float)
    return runs


def kernel_owners(builder: Builder, optimised: onnx.ModelProto) -> dict[str, str]:
    """Return, for each kernel of the optimised graph, the op it belongs to.

    Fused kernels keep the name of one of their nodes, or of their output. Quantizing a tensor belongs to the op that
    reads
    it, dequantizing to the op that wrote it.
    """
    graph, label = builder.graph, builder.label
    by_name: dict[str, str] = {}
    for unit in builder.units:
        for index in unit.nodes:
            node = graph.nodes[index]
            by_name.setdefault(node.name, unit.op.name)
            for output in node.output:
                by_name.setdefault(output, unit.op.name)
        for name in unit.activations:
            by_name.setdefault(label(name, "Q"), unit.op.name)
            by_name.setdefault(label(name, DYNAMIC[0]), unit.op.name)
        by_name.update((label(unit.op.name, part), unit.op.name) for part in BETWEEN_FLOATS)
        by_name.setdefault(label(unit.output, "DQ"), unit.op.name)
        if unit.is_embedding:
            by_name.update((label(unit.output, part), unit.op.name) for part in PARTS)
    owner_of = {}
    for kernel in optimised.graph.node:
        candidates = [kernel.name, plain_name(kernel.name), *map(plain_name, kernel.output)]
        owner = next((by_name[name] for name in candidates if name in by_name), None)
        if owner is not None:
            owner_of[kernel.name] = owner
    _claim_fused_kernels(builder, optimised, owner_of)
    _claim_conversions(optimised, owner_of)
    return owner_of


def _claim_conversions(optimised: onnx.ModelProto, owner_of: dict[str, str]) -> None:
    """Assign conversions by their neighbours: in a file that another tool made, they have other names."""
    readers: dict[str, str] = {}
    writers: dict[str, str] = {}
    for kernel in optimised.graph.node:
        if kernel.name in owner_of:
            writers.update(dict.fromkeys(kernel.output, owner_of[kernel.name]))
            for name in kernel.input:
                readers.setdefault(name, owner_of[kernel.name])
    for kernel in optimised.graph.node:
        if kernel.name not in owner_of and kernel.op_type in ("QuantizeLinear", "DequantizeLinear"):
            quantizes = kernel.op_type == "QuantizeLinear"
            owner = readers.get(kernel.output[0]) if quantizes else writers.get(kernel.input[0])
            if owner is not None:
                owner_of[kernel.name] = owner


def _claim_fused_kernels(builder: Builder, optimised: onnx.ModelProto, owner_of: dict[str, str]) -> None:
    """Assign kernels that are named after a fused follower to the op that does the work.

    A convolution with the residual Add behind it is named after the sum, one with a HardSigmoid after that.
    """
    graph = builder.graph
    owners = set(owner_of.values())
    computing = [unit for unit in builder.units if unit.weight is not None and not unit.is_embedding]
    weighty = {unit.op.name for unit in computing}
    idle_ops = {unit.anchor: unit.op.name for unit in computing if unit.op.name not in owners}
    for kernel in optimised.graph.node:
        does_arithmetic = any(kind in kernel.op_type for kind in ("Conv", "Gemm", "MatMul"))
        if does_arithmetic and owner_of.get(kernel.name) not in weighty:
            names = [plain_name(name) for name in (kernel.name, *kernel.output)]
            index = next((graph.producers[name] for name in names if name in graph.producers), None)
            owner = _nearest_upstream(graph, index, idle_ops)
            if owner is not None:
                owner_of[kernel.name] = owner


def _nearest_upstream(graph: Graph, index: int | None, idle: dict[int, str], steps: int = 4) -> str | None:
    """Return the nearest op without a kernel, going back from a node."""
    frontier = [] if index is None else [index]
    for _ in range(steps):
        for at in frontier:
            if at in idle:
                return idle[at]
        names = [name for at in frontier for name in graph.nodes[at].input]
        frontier = [graph.producers[name] for name in names if name in graph.producers]
    return None


def seconds_by_kind(
    builder: Builder, model: OnnxModel, feed: Feed, kinds: Mapping[int, str]
) -> tuple[dict[str, float], float]:
    """Return the seconds of each kind in one inference of a built fp32 model on one thread, and of all kernels.

    `kinds` names the nodes of interest by their index in the graph.
    """
    events, optimised = profiled(model, feed, threads=1)
    owner_of = kernel_owners(builder, optimised)
    kernels = {name: kind for name, kind in _kinds(builder, optimised, kinds).items() if name not in owner_of}
    runs = _runs_by_kind(events)[1:]
    kind_seconds = {
        kind: _quantile([sum(run[name] for name in run if kernels.get(name) == kind) for run in runs])
        for kind in dict.fromkeys(kernels.values())
    }
    return kind_seconds, _quantile([sum(run.values()) for run in runs])


def _quantile(seconds: list[float]) -> float:
    return float(np.quantile(seconds, QUANTILE)) if seconds else 0.0


def _kinds(builder: Builder, optimised: onnx.ModelProto, kinds: Mapping[int, str]) -> dict[str, str]:
    """Return the kind of each kernel, found by its name or by what it writes."""
    graph = builder.graph
    by_name = {graph.nodes[index].name: kind for index, kind in kinds.items()}
    by_name |= {name: kind for index, kind in kinds.items() for name in graph.nodes[index].output if name}
    kernel_kinds = {}
    for kernel in optimised.graph.node:
        names = [kernel.name, *map(plain_name, (kernel.name, *kernel.output))]
        kind = next((by_name[name] for name in names if name in by_name), None)
        if kind is not None:
            kernel_kinds[kernel.name] = kind
    return kernel_kinds


def _runs_by_kind(events: list[PlainDict]) -> list[dict[str, float]]:
    """Return the seconds of each kernel in each inference. Kernels in a body count for the If or Loop around it."""
    runs: list[dict[str, float]] = []
    current: list[PlainDict] = []
    for event in events:
        name = event.get("name", "")
        if event.get("cat") == "Node" and name.endswith(KERNEL_SUFFIX):
            current.append(event)
        elif name == "model_run":
            runs.append(_top_level_seconds(current))
            current = []
    return runs


def _top_level_seconds(events: list[PlainDict]) -> dict[str, float]:
    seconds: dict[str, float] = defaultdict(float)
    end = -1
    for event in sorted(events, key=lambda event: (event["ts"], -event["dur"])):
        if event["ts"] + event["dur"] > end:
            end = event["ts"] + event["dur"]
            seconds[event["name"].removesuffix(KERNEL_SUFFIX)] += event["dur"] * 1e-6
    return seconds
