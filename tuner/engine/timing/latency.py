"""How long models take, measured so that a busy machine does not mislead.

Models are run in turns, so that what disturbs one disturbs all. Where one thread does all the work it is the
processor's time that counts, which other programs take no part of. Of many runs the fast ones tell most: what slows a
run down comes from outside. As many rounds are taken as the spread demands, up to a limit; the limit is one of work
done, not of time passed, so that a busy machine gets as many rounds as a quiet one.
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


# Which of the sorted runs stands for all.
QUANTILE = 0.25
# Rounds to take at least and at most, and seconds for each model before and after which there is no end.
ROUNDS = (6, 5000)
LEAST_SECONDS = 0.03
SECONDS = 0.5
# On a machine that is busy with other things, no more than so many times the seconds pass.
PATIENCE = 4.0
# After each look at what was told so far, so many times the rounds are taken before the next.
NEXT_LOOK = 1.2
# Two halves of the rounds that tell the same, to this part, have told enough; to this one where it is to be chosen.
ENOUGH, TO_CHOOSE = 0.01, 0.005
# One thread does all the work if the whole process takes no more than so many times its time.
ALONE = 1.02


@dataclass(frozen=True, slots=True)
class Latency:
    """What one inference takes.

    Attributes:
        seconds: of a run that little disturbs.
        spread: by how much two halves of the runs differ, as a part of it.
        runs: how many there were.
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
    """The latency of each model, all run in turns on one feed, or each on its own.

    Args:
        models: to be run.
        feed: what they get.
        seconds: the most to spend of the processor's time, for all together.
        left: the most to spend on the clock.
        within: the first model is compared with; of the others those that take more than so many times what the
            fastest of them does are given up early, so that the time goes to those that may be chosen.

    If another run of this machine measures, it is waited for.
    """
    with exclusive_timing():
        return _measured(models, [feed] * len(models) if isinstance(feed, dict) else feed, seconds, left, within)


def _measured(
    models: Sequence[Model], feeds: Sequence[Feed], seconds: float | None, left: float, within: float
) -> list[Latency]:
    for model, feed in zip(models, feeds, strict=True):
        model.run(feed)
    most = SECONDS * len(models) if seconds is None else seconds
    longest = min(PATIENCE * most, left)
    taken: list[list[Times]] = [[] for _ in models]
    order, rng = list(range(len(models))), random.Random(0)
    begin, worked, look = time.perf_counter(), time.process_time(), ROUNDS[0]
    least, enough = min(LEAST_SECONDS * len(models), most), ENOUGH if math.isinf(within) else TO_CHOOSE
    for rounds in range(1, ROUNDS[1] + 1):
        rng.shuffle(order)  # a model that always came behind the same one would find the same cache
        for index in order:
            model = models[index]
            start = _now(model)
            model.run(feeds[index])
            taken[index].append(Times(*(after - before for before, after in zip(start, _now(model), strict=True))))
        passed = time.perf_counter() - begin
        spent = min(passed, time.process_time() - worked)  # several threads at work are no reason to end sooner
        if rounds >= ROUNDS[0] and (spent >= most or passed >= longest):
            break
        if rounds >= look:
            look = math.ceil(NEXT_LOOK * rounds)
            if spent >= least and _told_enough([taken[index] for index in order], enough):
                break
            order = _in_the_running(taken, sorted(order), within)
    return _latencies(taken)


def _in_the_running(taken: list[list[Times]], order: list[int], within: float) -> list[int]:
    """The first, and those that are not much slower than the fastest behind it."""
    seconds = [one.seconds for one in _latencies(taken)]
    fastest = min((seconds[index] for index in order if index), default=math.inf)
    return [index for index in order if not index or seconds[index] <= within * fastest]


def relative_latency(model: Model, baseline: Model, feed: Feed) -> float:
    """How long `model` takes compared with `baseline`."""
    one, other = measure([model, baseline], feed)
    return one.seconds / other.seconds


class Times(NamedTuple):
    """Seconds by three clocks: on the wall, of the thread that computes, of all threads of this process."""

    wall: float
    thread: float
    process: float


def _now(model: Model) -> Times:
    return Times(time.perf_counter(), model.processor_time(), time.process_time())


def _told_enough(taken: list[list[Times]], enough: float) -> bool:
    return all(latency.spread < enough for latency in _latencies(taken))


def _latencies(taken: list[list[Times]]) -> list[Latency]:
    every = [one for runs in taken for one in runs]
    alone = sum(one.process for one in every) < ALONE * sum(one.thread for one in every)
    found = []
    for runs in taken:
        seconds = np.array([one.thread if alone else one.wall for one in runs])
        halves = (seconds[::2], seconds[1::2]) if len(seconds) > 1 else (seconds, seconds)
        whole, even, odd = (float(np.quantile(part, QUANTILE)) for part in (seconds, *halves))
        found.append(Latency(whole, abs(even - odd) / whole if whole > 0 else 0.0, len(runs)))
    return found
