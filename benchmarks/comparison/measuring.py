"""All answers for one model under the same conditions: scores, size, what really runs in int8, and latency."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.comparison.computing import Computing, computing
from benchmarks.models import Bench
from benchmarks.peers.job import Shapes, fixed_shapes

MIN_ROUNDS = 15
Clock = Callable[[], float]
Session = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model file and the runtime to measure it in."""

    path: Path
    runtime: str

    @property
    def size(self) -> int:
        """Return the bytes of the file, and of the weights that OpenVINO keeps beside it."""
        weights = self.path.with_suffix(".bin")
        return self.path.stat().st_size + (weights.stat().st_size if self.path.suffix == ".xml" else 0)


@dataclass(frozen=True, slots=True)
class Measured:
    """A model file in a runtime.

    Attributes:
        score: on the samples that the tool tuned on.
        held_out: on as many that no tool saw.
        size: bytes.
        computing: how its convolutions and matrix products run.
        latency: lower quartile, median, upper quartile of its processor time on one thread, as a fraction of the float
            model's in ONNX Runtime in the same round.
    """

    score: float
    held_out: float
    size: int
    computing: Computing
    latency: tuple[float, float, float]


def session(candidate: Candidate, shapes: Shapes) -> Session:
    """Open a model in a runtime, on one thread."""
    if candidate.runtime == "litert":
        from benchmarks.peers.tflite_session import TFLiteSession

        return TFLiteSession(candidate.path, 1)
    if candidate.runtime == "onnxruntime":
        from benchmarks.peers.onnx_session import OnnxSession

        return OnnxSession(candidate.path, 1)
    from benchmarks.peers.openvino_session import OpenVinoSession

    precision = "bf16" if candidate.runtime == "openvino bf16" else "f32"
    return OpenVinoSession(candidate.path, 1, precision, shapes)


def measure(candidates: Sequence[Candidate], bench: Bench, seconds: float) -> list[Measured | str]:
    """Measure models; the first is the float one in ONNX Runtime. One that does not run gives its error message.

    Args:
        candidates: what to measure.
        bench: data to score on.
        seconds: how long to measure latencies.
    """
    shapes, feed = fixed_shapes(bench), dict(bench.calib[0])
    opened: dict[int, Session] = {}
    results: dict[int, Measured | str] = {}
    scores: dict[int, tuple[float, float]] = {}
    for index, candidate in enumerate(candidates):
        try:
            opened[index] = session(candidate, shapes)
            scores[index] = bench.eval_func(opened[index]), bench.held_out_eval_func(opened[index])
        except Exception as error:
            opened.pop(index, None)
            results[index] = f"{type(error).__name__}: {_first_line(error)}"
    times = dict(zip(opened, latencies(list(opened.values()), feed, seconds, time.process_time), strict=True))
    for index, model in opened.items():
        candidate = candidates[index]
        results[index] = Measured(*scores[index], candidate.size, computing(candidate.path, model), times[index])
    return [results[index] for index in range(len(candidates))]


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines()]
    return next((line for line in lines if line and not line.startswith("Exception from")), "")[:200]


def latencies(models: Sequence[Session], feed: Any, seconds: float, clock: Clock) -> list[tuple[float, float, float]]:
    """Return the quartiles of each model's time relative to the first model, over interleaved rounds of all models."""
    order, chance = list(range(len(models))), random.Random(0)
    rounds: list[list[float]] = []
    for model in models:
        model(feed)
    end = time.perf_counter() + seconds
    while len(rounds) < MIN_ROUNDS or time.perf_counter() < end:
        elapsed = [0.0] * len(models)
        chance.shuffle(order)  # a model that always came behind the same one would find the same cache
        for index in order:
            start = clock()
            models[index](feed)
            elapsed[index] = clock() - start
        rounds.append([value / elapsed[0] for value in elapsed])
    columns = zip(*rounds, strict=True)
    return [_quartiles(column) for column in columns]


def _quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    low, middle, high = statistics.quantiles(values, n=4)
    return round(low, 4), round(middle, 4), round(high, 4)
