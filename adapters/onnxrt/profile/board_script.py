"""Times models on a machine that has Python, numpy and onnxruntime, and nothing of quaver.

This file is the `__main__.py` of what `quaver profile --board FILE` writes; it imports nothing of quaver. It prints the
times as JSON, to be used with `fit(..., cost_model=...)`.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import platform
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import numpy as np
import onnxruntime as ort

KERNEL = "_kernel_time"
# Which of the sorted runs stands for all: what slows a run down comes from outside.
QUANTILE = 0.25
# A slow spell of the machine may cover a profile: each is taken so often, one after the other, and the least counts.
ROUNDS = 3


def session(path: Path, profile: Path | None = None) -> Any:
    """A session on one thread; with a profile beside it, and the graph that it runs, if they are asked for."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    if profile is not None:
        options.enable_profiling = True
        options.profile_file_prefix = str(profile)
        options.optimized_model_filepath = f"{profile}.onnx"
        options.add_session_config_entry(
            "session.optimized_model_external_initializers_file_name", f"{profile.name}.bin"
        )
        options.add_session_config_entry("session.optimized_model_external_initializers_min_size_in_bytes", "256")
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def kernels(path: Path, feed: dict[str, Any], folder: Path, runs: int) -> tuple[dict[str, float], str]:
    """Seconds of each kernel of a model, and the graph that holds them."""
    prefix = folder / f"profile_{path.stem}"
    profiled = session(path, prefix)
    for _ in range(runs + 1):
        profiled.run(None, feed)
    taken: dict[str, list[float]] = {}
    for event in json.loads(Path(profiled.end_profiling()).read_text(encoding="utf-8")):
        name = event.get("name", "")
        if event.get("cat") == "Node" and name.endswith(KERNEL):
            taken.setdefault(name[: -len(KERNEL)], []).append(event["dur"] * 1e-6)
    graph = base64.b64encode(Path(f"{prefix}.onnx").read_bytes()).decode("ascii")
    return {name: float(np.quantile(seconds[1:] or seconds, QUANTILE)) for name, seconds in taken.items()}, graph


def profiles(paths: list[Path], feed: dict[str, Any], folder: Path, runs: int) -> list[tuple[dict[str, float], str]]:
    """Seconds of each kernel of each model, and the graphs that hold them."""
    found: list[tuple[dict[str, float], str]] = []
    for count in range(ROUNDS):
        for index, path in enumerate(paths):
            place = folder / str(count)
            place.mkdir(exist_ok=True)
            taken, graph = kernels(path, feed, place, max(runs // ROUNDS, 1))
            if count == 0:
                found.append((taken, graph))
                continue
            known = found[index][0]
            known.update({name: min(seconds, known.get(name, seconds)) for name, seconds in taken.items()})
    return found


def whole(paths: list[Path], feed: dict[str, Any], runs: int) -> list[float]:
    """Seconds of one inference of each model, all run in turns.

    Each is run twice, and only the second time counts: the models take the cache from each other.
    """
    sessions = [session(path) for path in paths]
    taken: list[list[float]] = [[] for _ in paths]
    for count in range(runs + 1):
        for index, one in enumerate(sessions):
            one.run(None, feed)
            begin = time.thread_time()
            one.run(None, feed)
            if count:
                taken[index].append(time.thread_time() - begin)
    return [float(np.quantile(seconds, QUANTILE)) for seconds in taken]


def main(kit: str) -> None:
    """Time what is in the kit, and print it."""
    parser = argparse.ArgumentParser(description="Times a model on this machine for quaver, and prints JSON.")
    parser.add_argument("--target", default=f"{platform.node() or 'a machine'} ({platform.machine()}, 1 thread)")
    parser.add_argument("--runs", type=int, default=30, help="inferences of each model (default: 30)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="quaver-board-") as name, zipfile.ZipFile(kit) as packed:
        folder = Path(name)
        packed.extractall(folder)
        job = json.loads((folder / "job.json").read_text(encoding="utf-8"))
        with np.load(folder / "feed.npz", allow_pickle=False) as arrays:
            feed = {key: arrays[f"arr_{index}"] for index, key in enumerate(job["inputs"])}
        paths = [folder / model for model in job["models"]]
        profiled = profiles(paths[: job["profiled"]], feed, folder, args.runs)
        raw = {
            "kernels": [taken for taken, _ in profiled],
            "graphs": [graph for _, graph in profiled],
            "whole": whole(paths, feed, args.runs),
        }
    versions = {"onnxruntime": ort.__version__, "python": platform.python_version()}
    json.dump({**job["said"], "target": args.target, "versions": versions, "raw": raw}, sys.stdout)


if __name__ == "__main__":
    main(sys.path[0])
