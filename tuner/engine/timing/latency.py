"""Measure the latency of models so that a busy machine does not mislead.

Models are interleaved, so that what disturbs one disturbs all. Where one thread does all the work, its processor time
counts, because other programs take no part of it. Of many runs the fast ones tell most: whatever slows a run down
comes from outside. Rounds are added until the spread is small enough, up to a limit on the work done, not on the time
passed, so that a busy machine gets as many rounds as a quiet one.
"""

from __future__ import annotations

import contextlib
import math
import os
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from quaver.adapters import Model
from quaver.files import locks
from quaver.types import Feed

# Seconds to wait for another process that measures; then measure anyway. Judgement: models are interleaved, so a figure
# relative to the float model is still usable when two processes measure at once.
MAX_WAIT = 60.0
# Seconds between two attempts to get the lock.
LOCK_INTERVAL = 0.05


@contextlib.contextmanager
def exclusive_timing() -> Iterator[None]:
    """Wait until no other process of this machine measures, and keep others from starting to."""
    handle = _open_lock()
    try:
        end = time.monotonic() + MAX_WAIT
        while handle is not None and not _is_locked(handle) and time.monotonic() < end:
            time.sleep(LOCK_INTERVAL)
        yield
    finally:
        if handle is not None:
            os.close(handle)


def _open_lock() -> int | None:
    """Open the folder for temporary files, which all processes of the machine lock for this."""
    with contextlib.suppress(OSError):
        return os.open(tempfile.gettempdir(), os.O_RDONLY)
    return None


def _is_locked(handle: int) -> bool:
    try:
        return locks.try_acquire(handle)
    except OSError:  # a file system without locks: measure without waiting
        return True


# The quantile of the sorted runs that stands for all of them. Judgement: low, because disturbances only add time, and
# above the minimum, which is a single run.
QUANTILE = 0.25
# Bounds on the number of rounds. Judgement: six give two halves of three runs each to compare.
MIN_ROUNDS, MAX_ROUNDS = 6, 5000
# Seconds of work for each model: at least, and at most unless the caller says otherwise. Judgement: half a second for
# each finalist is little next to one evaluation of a real model.
MIN_SECONDS = 0.03
SECONDS = 0.5
# On a machine that is busy with other work, measuring takes at most this many times the seconds of work.
PATIENCE = 16.0
# The spread is computed again after this many times the rounds, so that computing it costs little.
CHECK_FACTOR = 1.2
# Measuring ends when two halves of the rounds differ by less than this part, or this one where a model is to be chosen.
STEADY_SPREAD, STEADY_SPREAD_TO_CHOOSE = 0.01, 0.005
# One thread does all the work if the whole process takes no more than this many times that thread's time.
SINGLE_THREAD_FACTOR = 1.02


@dataclass(frozen=True, slots=True)
class Latency:
    """The latency of one inference.

    Attributes:
        seconds: of a run that little disturbs.
        spread: the difference between two halves of the runs, as a part of `seconds`.
        runs: the number of runs.
    """

    seconds: float
    spread: float
    runs: int


def measure(
    models: Sequence[Model],
    feed: Feed | Sequence[Feed],
    seconds: float | None = None,
    left: float = math.inf,
    within: float = math.inf,
) -> list[Latency]:
    """Return the latency of each model, all interleaved on one feed, or each on its own.

    If another process of this machine measures, this one waits for it.

    Args:
        models: the models to run.
        feed: the input of all models, or one input for each.
        seconds: the most processor time to spend, for all models together.
        left: the most time to spend on the clock.
        within: the first model is the reference; of the others, those that take more than this many times the fastest
            are dropped early, so that the time goes to those that may be chosen.
    """
    with exclusive_timing():
        return _measured(models, [feed] * len(models) if isinstance(feed, dict) else feed, seconds, left, within)


def compare(
    models: Sequence[Model], baseline: Model, feed: Feed, seconds: float | None = None, left: float = math.inf
) -> list[dict[str, float]]:
    """Return the figures of each model, all interleaved with the float model; `seconds` and `left` as in `measure`.

    `latency` is a fraction of the float model's, `latency_ms` the milliseconds of one inference, and `latency_spread`
    the difference between two halves of the runs, as a part of the latency.
    """
    *latencies, base = measure([as_deployed(model) for model in (*models, baseline)], feed, seconds, left)
    return [
        {
            "latency": latency.seconds / base.seconds,
            "latency_ms": 1e3 * latency.seconds,
            "latency_spread": latency.spread,
        }
        for latency in latencies
    ]


def as_deployed(model: Model) -> Model:
    """Return the model on the threads that were asked for, or else on one."""
    return model.with_threads(model.threads or 1)


def relative_latency(model: Model, baseline: Model, feed: Feed) -> float:
    """Return the latency of `model` divided by that of `baseline`."""
    latency, base = measure([model, baseline], feed)
    return latency.seconds / base.seconds


class Times(NamedTuple):
    """Seconds by three clocks: on the wall, of the thread that computes, of all threads of this process."""

    wall: float
    thread: float
    process: float


def _measured(
    models: Sequence[Model], feeds: Sequence[Feed], seconds: float | None, left: float, within: float
) -> list[Latency]:
    for model, feed in zip(models, feeds, strict=True):
        model.run(feed)
    max_work = SECONDS * len(models) if seconds is None else seconds
    max_passed = min(PATIENCE * max_work, left)
    runs: list[list[Times]] = [[] for _ in models]
    order, rng = list(range(len(models))), random.Random(0)
    begin, worked, next_check = time.perf_counter(), time.process_time(), MIN_ROUNDS
    min_work = min(MIN_SECONDS * len(models), max_work)
    steady = STEADY_SPREAD if math.isinf(within) else STEADY_SPREAD_TO_CHOOSE
    for rounds in range(1, MAX_ROUNDS + 1):
        rng.shuffle(order)  # a model that always ran after the same other one would always find the same cache
        for index in order:
            model = models[index]
            start = _now(model)
            model.run(feeds[index])
            runs[index].append(Times(*(after - before for before, after in zip(start, _now(model), strict=True))))
        passed = time.perf_counter() - begin
        spent = min(passed, time.process_time() - worked)  # several threads at work are no reason to end sooner
        if rounds >= MIN_ROUNDS and (spent >= max_work or passed >= max_passed):
            break
        if rounds >= next_check and spent >= min_work:  # the first runs of a session are slow, of some models more so
            next_check = math.ceil(CHECK_FACTOR * rounds)
            if _is_steady([runs[index] for index in order], steady):
                break
            order = _still_in_running(runs, sorted(order), within)
    return _latencies(runs)


def _still_in_running(runs: list[list[Times]], order: list[int], within: float) -> list[int]:
    """Return the first model, and of the others those that are not much slower than the fastest."""
    seconds = [latency.seconds for latency in _latencies(runs)]
    fastest = min((seconds[index] for index in order if index), default=math.inf)
    return [index for index in order if not index or seconds[index] <= within * fastest]


def _now(model: Model) -> Times:
    return Times(time.perf_counter(), model.processor_time(), time.process_time())


def _is_steady(runs: list[list[Times]], steady: float) -> bool:
    return all(latency.spread < steady for latency in _latencies(runs))


def _latencies(runs: list[list[Times]]) -> list[Latency]:
    all_times = [times for runs_of_model in runs for times in runs_of_model]
    process, thread = sum(times.process for times in all_times), sum(times.thread for times in all_times)
    single_thread = process < SINGLE_THREAD_FACTOR * thread
    latencies = []
    for runs_of_model in runs:
        seconds = np.array([times.thread if single_thread else times.wall for times in runs_of_model])
        halves = (seconds[::2], seconds[1::2]) if len(seconds) > 1 else (seconds, seconds)
        whole, even, odd = (float(np.quantile(part, QUANTILE)) for part in (seconds, *halves))
        latencies.append(Latency(whole, abs(even - odd) / whole if whole > 0 else 0.0, len(runs_of_model)))
    return latencies
