"""How long a model takes compared with another."""

from __future__ import annotations

import statistics
import time
from typing import NamedTuple

from quaver.adapters import Model
from quaver.adapters.batches import Feed

# How long a latency measurement goes on, and how many pairs of runs it takes at least and at most.
SECONDS = 0.5
PAIRS = (5, 200)
# This thread does all the work if the whole process takes no more than so many times its time.
ALONE = 1.02


def relative_latency(model: Model, baseline: Model, feed: Feed) -> float:
    """How long `model` takes compared with `baseline`: medians of runs taken in turns, so that noise hits both.

    Where this thread does all the work, it is the processor's time that counts: other programs do not disturb it.
    """
    for warm in (model, baseline):
        warm.run(feed)
    runs: tuple[list[Times], list[Times]] = ([], [])
    end = time.perf_counter() + SECONDS
    while len(runs[0]) < PAIRS[0] or (len(runs[0]) < PAIRS[1] and time.perf_counter() < end):
        for taken, which in zip(runs, (model, baseline), strict=True):
            start = _now()
            which.run(feed)
            taken.append(Times(*(after - before for before, after in zip(start, _now(), strict=True))))
    every = [*runs[0], *runs[1]]
    alone = sum(one.process for one in every) < ALONE * sum(one.thread for one in every)
    return _median(runs[0], alone) / _median(runs[1], alone)


class Times(NamedTuple):
    """Seconds by three clocks: on the wall, of this thread on a processor, of all threads of this process."""

    wall: float
    thread: float
    process: float


def _now() -> Times:
    return Times(time.perf_counter(), time.thread_time(), time.process_time())


def _median(runs: list[Times], alone: bool) -> float:
    return statistics.median(one.thread if alone else one.wall for one in runs)
