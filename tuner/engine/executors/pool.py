"""Workers that are ready for tasks."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pool:
    """Whoever has the workers, and how many there are.

    Attributes:
        executor: takes tasks.
        jobs: how many it works on at once.
        threads: of one inference on a worker; 0 leaves it to the runtime.
        deaths: what a future raises when its worker died.
        stop: ends what is under way, as far as that is possible, once the last trial is told.
    """

    executor: concurrent.futures.Executor
    jobs: int
    threads: int
    deaths: tuple[type[BaseException], ...] = ()
    stop: Callable[[], None] = lambda: None
