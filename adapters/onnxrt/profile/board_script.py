"""The board script: times models on a machine that has Python, numpy and onnxruntime, and nothing of quaver.

This file is the `__main__.py` of what `quaver profile --board FILE` writes; it imports nothing of quaver. It prints the
times as JSON, for `fit(..., cost_model=...)`.
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

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

Array = NDArray[np.generic]

KERNEL_SUFFIX = "_kernel_time"
# The quantile of the sorted runs that counts. Judgement: what slows a run down comes from outside.
QUANTILE = 0.25
# A slow phase of the machine may cover a profile: each is taken this often, interleaved, and the smallest counts.
ROUNDS = 3


def session(path: Path, profile: Path | None = None) -> ort.InferenceSession:
    """Return a session on one thread; with `profile` it writes a profile, and the graph it runs, to such files."""
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


def kernels(path: Path, feed: dict[str, Array], folder: Path, runs: int) -> tuple[dict[str, float], str]:
    """Return the seconds of each kernel of a model, and the graph that holds them."""
    prefix = folder / f"profile_{path.stem}"
    profiled = session(path, prefix)
    for _ in range(runs + 1):
        profiled.run(None, feed)
    seconds_of: dict[str, list[float]] = {}
    for event in json.loads(Path(profiled.end_profiling()).read_text(encoding="utf-8")):
        name = event.get("name", "")
        if event.get("cat") == "Node" and name.endswith(KERNEL_SUFFIX):
            seconds_of.setdefault(name[: -len(KERNEL_SUFFIX)], []).append(event["dur"] * 1e-6)
    graph = base64.b64encode(Path(f"{prefix}.onnx").read_bytes()).decode("ascii")
    return {name: float(np.quantile(seconds[1:] or seconds, QUANTILE)) for name, seconds in seconds_of.items()}, graph


def profiles(paths: list[Path], feed: dict[str, Array], folder: Path, runs: int) -> list[tuple[dict[str, float], str]]:
    """Return the seconds of each kernel of each model, and the graphs that hold them."""
    fastest: list[tuple[dict[str, float], str]] = []
    for count in range(ROUNDS):
        for index, path in enumerate(paths):
            place = folder / str(count)
            place.mkdir(exist_ok=True)
            seconds_of, graph = kernels(path, feed, place, max(runs // ROUNDS, 1))
            if count == 0:
                fastest.append((seconds_of, graph))
                continue
            fastest_of = fastest[index][0]
            fastest_of.update(
                {name: min(seconds, fastest_of.get(name, seconds)) for name, seconds in seconds_of.items()}
            )
    return fastest


def whole(paths: list[Path], feed: dict[str, Array], runs: int) -> list[float]:
    """Return the seconds of one inference of each model, interleaved.

    Each model runs twice, and only the second time counts: the models evict each other from the cache.
    """
    sessions = [session(path) for path in paths]
    seconds_of: list[list[float]] = [[] for _ in paths]
    for count in range(runs + 1):
        for index, current in enumerate(sessions):
            current.run(None, feed)
            begin = time.thread_time()
            current.run(None, feed)
            if count:
                seconds_of[index].append(time.thread_time() - begin)
    return [float(np.quantile(seconds, QUANTILE)) for seconds in seconds_of]


def main(kit: str) -> None:
    """Time the models in the kit, and print the times."""
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
            "kernels": [seconds for seconds, _ in profiled],
            "graphs": [graph for _, graph in profiled],
            "whole": whole(paths, feed, args.runs),
        }
    versions = {"onnxruntime": ort.__version__, "python": platform.python_version()}
    json.dump({**job["said"], "target": args.target, "versions": versions, "raw": raw}, sys.stdout)


if __name__ == "__main__":
    main(sys.path[0])
