"""Processes on this machine, as loky starts them: one for each job."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

from quaver.engine.executors.slot import Slot
from quaver.engine.executors.task import Outcome, Task


class LocalPool(Executor):
    """As many threads as jobs, each with a slot of its own. It takes tasks only, and knows what to do with them."""

    def __init__(self, jobs: int) -> None:
        self._max_workers = jobs
        self._threads = ThreadPoolExecutor(jobs, thread_name_prefix="quaver-slot")
        self._here = threading.local()
        self._slots: list[Slot] = []
        self._lock = threading.Lock()
        self._closed = False

    def submit(self, function: Callable[..., Any], /, *args: Any, **keywords: Any) -> Future[Any]:
        """Carry out a task; `function` is what other executors would have to be told."""
        return self._threads.submit(self._run, *args, **keywords)

    def _run(self, task: Task) -> Outcome:
        slot = getattr(self._here, "slot", None)
        if slot is None:
            with self._lock:
                slot = self._here.slot = Slot()
                self._slots.append(slot)
                if self._closed:
                    slot.close()
        return slot.run(task)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End all processes, whatever they do."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            self._closed = True
            slots = list(self._slots)
        for slot in slots:
            slot.close()
        self._threads.shutdown(wait=wait)
