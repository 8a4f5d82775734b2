"""All answers for one model under the same runtime: scores, size, what really runs in int8, and latency."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.comparison.computing import Computing, computing
from benchmarks.models import Bench

MIN_ROUNDS = 15
Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Measured:
    """A model file.

    Attributes:
        score: on the samples that the tool tuned on.
        held_out: on as many that no tool saw.
        size: bytes.
        computing: how its convolutions and matrix products run.
        latency: for each number of threads: lower quartile, median, upper quartile of its time as a fraction of the
            float model's in the same round.
    """

    score: float
    held_out: float
    size: int
    computing: Computing
    latency: Mapping[int, tuple[float, float, float]]


def session(model: Path, threads: int) -> Callable[[Any], Any]:
    """The model in the runtime for its kind of file."""
    if model.suffix == ".tflite":
        from benchmarks.peers.tflite_session import TFLiteSession

        return TFLiteSession(model, threads)
    from benchmarks.peers.onnx_session import OnnxSession

    return OnnxSession(model, threads)


def measure(models: Sequence[Path], bench: Bench, seconds: float) -> list[Measured]:
    """Measure the models; the first is the float one.

    Args:
        models: model files.
        bench: data to score them on.
        seconds: how long to measure the latencies for each number of threads.
    """
    single = [session(path, 1) for path in models]
    scores = [(bench.eval_func(model), bench.held_out_eval_func(model)) for model in single]
    feed = dict(bench.calib[0])
    latency = {
        1: latencies(single, feed, seconds, time.process_time),  # other programs' time does not count
        2: latencies([session(path, 2) for path in models], feed, seconds, time.perf_counter),
    }
    return [
        Measured(*scores[i], path.stat().st_size, computing(path), {n: latency[n][i] for n in latency})
        for i, path in enumerate(models)
    ]


def latencies(
    models: Sequence[Callable[[Any], Any]], feed: Any, seconds: float, clock: Clock
) -> list[tuple[float, float, float]]:
    """Return the quartiles of each model's time relative to the first model, over interleaved rounds of all models."""
    order, chance = list(range(len(models))), random.Random(0)
    rounds: list[list[float]] = []
    for model in models:
        model(feed)
    end = time.perf_counter() + seconds
    while len(rounds) < MIN_ROUNDS or time.perf_counter() < end:
        taken = [0.0] * len(models)
        chance.shuffle(order)  # a model that always came behind the same one would find the same cache
        for index in order:
            start = clock()
            models[index](feed)
            taken[index] = clock() - start
        rounds.append([value / taken[0] for value in taken])
    columns = zip(*rounds, strict=True)
    return [_quartiles(column) for column in columns]


def _quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    low, middle, high = statistics.quantiles(values, n=4)
    return round(low, 4), round(middle, 4), round(high, 4)
