"""What part of the time goes into nodes that are part of no op."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx

from quaver.adapters.batches import Feed
from quaver.adapters.onnxrt.build.assembler import Assembler
from quaver.adapters.onnxrt.run.model import OnnxModel
from quaver.adapters.onnxrt.time.kernels import plain_name
from quaver.adapters.onnxrt.time.profiling import KERNEL, QUANTILE, owners, profiled


def seconds_by_kind(
    assembler: Assembler, model: OnnxModel, feed: Feed, kinds: Mapping[int, str]
) -> tuple[dict[str, float], float]:
    """Seconds of each kind in one inference of a built fp32 model on one thread, and of all kernels together.

    `kinds` names the nodes of interest by their index in the graph.
    """
    events, optimised = profiled(model, feed, threads=1)
    belongs = owners(assembler, optimised)
    kernels = {name: kind for name, kind in _kinds(assembler, optimised, kinds).items() if name not in belongs}
    runs = _runs(events)[1:]
    found = {
        kind: _usual([sum(run[name] for name in run if kernels.get(name) == kind) for run in runs])
        for kind in dict.fromkeys(kernels.values())
    }
    return found, _usual([sum(run.values()) for run in runs])


def _usual(seconds: list[float]) -> float:
    return float(np.quantile(seconds, QUANTILE)) if seconds else 0.0


def _kinds(assembler: Assembler, optimised: onnx.ModelProto, kinds: Mapping[int, str]) -> dict[str, str]:
    """What each kernel was in the graph, by its name or by what it produces."""
    graph = assembler.graph
    by_name = {graph.nodes[index].name: kind for index, kind in kinds.items()}
    by_name |= {name: kind for index, kind in kinds.items() for name in graph.nodes[index].output if name}
    found = {}
    for kernel in optimised.graph.node:
        names = [kernel.name, *map(plain_name, (kernel.name, *kernel.output))]
        kind = next((by_name[name] for name in names if name in by_name), None)
        if kind is not None:
            found[kernel.name] = kind
    return found


def _runs(events: list[dict[str, Any]]) -> list[dict[str, float]]:
    """Seconds of each kernel in each inference. Those in a body are part of the If or Loop that it belongs to."""
    runs: list[dict[str, float]] = []
    current: list[dict[str, Any]] = []
    for event in events:
        name = event.get("name", "")
        if event.get("cat") == "Node" and name.endswith(KERNEL):
            current.append(event)
        elif name == "model_run":
            runs.append(_outer(current))
            current = []
    return runs


def _outer(events: list[dict[str, Any]]) -> dict[str, float]:
    seconds: dict[str, float] = defaultdict(float)
    end = -1
    for event in sorted(events, key=lambda event: (event["ts"], -event["dur"])):
        if event["ts"] + event["dur"] > end:
            end = event["ts"] + event["dur"]
            seconds[event["name"].removesuffix(KERNEL)] += event["dur"] * 1e-6
    return seconds
