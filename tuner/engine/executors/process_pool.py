"""One evaluation at a time in a process of its own, which may die or be ended without harm to anything else.

Every worker of every executor has such a slot for each of its threads: so a death is always that of one known task.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import faulthandler
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as TookTooLong
from pathlib import Path
from typing import Any

from quaver.engine.executors import worker
from quaver.engine.executors.base import Evaluation, Outcome, State, Task
from quaver.errors import ExecutorError
from quaver.files.temporary import temporary_folder

# Of what a worker wrote to stderr before it died, so many lines are kept.
LAST_LINES = 20
# Bytes of a worker's stderr that are read: the last ones. An evaluation may write without end.
MAX_STDERR = 64 * 2**10
# The file that holds a worker's stderr is cut to its end when it is larger than this.
MAX_STDERR_FILE = 2**22
# A worker looks so often whether whoever started it is still there, in seconds.
LOOK = 1.0
# Libraries that start as many threads as there are cores take their number from these.
THREADS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)


class WorkerProcess:
    """A process that carries out tasks, one by one. It is started when it is needed, and again when it has died.

    Args:
        idle: after so many seconds without a task the process ends, and its memory is free; None is never.
    """

    def __init__(self, idle: float | None = None) -> None:
        self._idle = idle
        self._pool: Any = None
        self._site = ""
        self._closed = False
        self._lock = threading.Lock()
        self._place: Path | None = None
        self._files = contextlib.ExitStack()

    def run(self, task: Task) -> Outcome:
        """Carry out a task, and tell how it ended."""
        from loky.process_executor import BrokenProcessPool

        processes: list[Any] = []
        begin, started = time.monotonic(), time.time()
        try:
            try:
                refused: Outcome | None = self._call(processes, None, worker.prepare, task)
            except BrokenProcessPool:  # it may have died while it had nothing to do
                self._end()
                refused = self._call(processes, None, worker.prepare, task)
            if refused is not None:
                return refused
            begin, started = time.monotonic(), time.time()
            outcome: Outcome = self._call(processes, task.seconds, worker.work, task)
        except TookTooLong:
            name = _name(processes)
            self._end()
            spent = time.monotonic() - begin
            message = f"it took longer than {task.seconds:.4g} s (trial_timeout), and its process was ended"
            evaluation = Evaluation(seconds=spent, worker=name, started=started, error=message + self._last_lines())
            return Outcome(State.ENDED, evaluation, message)
        except BrokenProcessPool as error:
            if self._closed:
                return Outcome(State.DIED, Evaluation(error="the run is over"))
            message = f"the worker process {_how(processes)} during the task"
            spent, lines = time.monotonic() - begin, self._last_lines()
            self._end()
            cause = "" if processes else f" ({error})"
            name = _name(processes)
            evaluation = Evaluation(seconds=spent, worker=name, started=started, error=message + cause + lines)
            return Outcome(State.DIED, evaluation, message)
        self._pass_on()
        return outcome

    def close(self) -> None:
        """End the process, whatever it does. May be called from another thread."""
        self._closed = True
        self._end()
        self._files.close()

    def _call(self, processes: list[Any], seconds: float | None, function: Any, task: Task) -> Any:
        pool = self._opened(task)
        future = pool.submit(function, task)
        processes[:] = list(pool._processes.values()) or processes
        return future.result(seconds)

    def _opened(self, task: Task) -> Any:
        with self._lock:
            if self._closed:
                raise ExecutorError("the run is over")
            if self._pool is not None and self._site != task.site:  # each run has processes of its own
                self._pool.shutdown(kill_workers=True)
                self._pool = None
            if self._pool is None:
                self._pool, self._site = self._start(task.threads), task.site
            return self._pool

    def _start(self, threads: int) -> Any:
        from loky import ProcessPoolExecutor

        if self._place is None:
            self._place = self._files.enter_context(temporary_folder())
        stderr = self._place / "stderr"
        stderr.write_bytes(b"")
        with _may_have_children(), _without_interrupts():
            pool = ProcessPoolExecutor(
                1,
                timeout=self._idle,
                initializer=_settle,
                initargs=(str(stderr), os.getpid()),
                env={name: str(threads) for name in THREADS} if threads else None,
            )
            pool.submit(os.getpid)  # starts the process
        return pool

    def _end(self) -> None:
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            with contextlib.suppress(Exception):
                pool.shutdown(kill_workers=True)

    def _last_lines(self) -> str:
        """What the process said at last, to be added to how it ended."""
        lines = self._said().strip().splitlines()[-LAST_LINES:]
        return "\n".join([". It said at last:", *lines]) if lines else ""

    def _pass_on(self) -> None:
        """What eval_func wrote to stderr is for the user to see."""
        text = self._said()
        if text:
            with contextlib.suppress(OSError):
                os.truncate(self._place / "stderr", 0)  # type: ignore[operator]
            with contextlib.suppress(Exception):
                sys.stderr.write(text)
                sys.stderr.flush()

    def _said(self) -> str:
        """Return the end of what the process wrote to stderr."""
        assert self._place is not None
        with contextlib.suppress(OSError):
            return read_end(self._place / "stderr")
        return ""


_here = threading.local()
# A worker of a cluster that has had nothing to do for so long lets go of the memory.
IDLE = 60.0


def carry_out(task: Task) -> Outcome:
    """Carry out a task in the slot of this thread: what executors of others are given."""
    slot = getattr(_here, "slot", None)
    if slot is None:
        slot = _here.slot = WorkerProcess(IDLE)
        atexit.register(slot.close)
    outcome: Outcome = slot.run(task)
    return outcome


def _settle(stderr: str, parent: int) -> None:
    """The first thing in a new process: errors are kept, and it ends when its parent does."""
    try:
        file = os.open(stderr, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    except FileNotFoundError:  # the run was over before this process began
        os._exit(1)
    os.dup2(file, 2)
    os.close(file)
    faulthandler.enable(all_threads=False)
    _end_with(parent, stderr)


def read_end(path: str | Path) -> str:
    """Return the last `MAX_STDERR` bytes of a file as text, with a line that says how much is left out."""
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - MAX_STDERR, 0))
        text = file.read(MAX_STDERR).decode(errors="replace")
    return text if size <= MAX_STDERR else f"[{size - MAX_STDERR:,} bytes left out]\n{text}"


def cut_to_end(path: str) -> None:
    """Leave only the end of a file that has grown too large. Whoever appends to it goes on behind that."""
    with contextlib.suppress(OSError):
        if os.path.getsize(path) > MAX_STDERR_FILE:
            end = read_end(path)
            with open(path, "r+b") as file:
                file.write(end.encode())
                file.truncate()


def _end_with(parent: int, stderr: str) -> None:
    """Do not outlive the parent, nor the run: by the system's help where it gives some, else within seconds."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os._exit(1)

    def look() -> None:
        while os.getppid() == parent and not worker.is_over():
            time.sleep(LOOK)
            cut_to_end(stderr)
        os._exit(1)

    threading.Thread(target=look, daemon=True, name="quaver-parent").start()


@contextlib.contextmanager
def _without_interrupts() -> Iterator[None]:
    """Ctrl-C reaches all processes of a terminal; it is for the run to say what becomes of its workers."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _may_have_children() -> Iterator[None]:
    """Workers of Dask are daemons, which may not start processes; these end with them."""
    import multiprocessing

    config = multiprocessing.current_process()._config  # type: ignore[attr-defined]
    before = config.get("daemon")
    config["daemon"] = False
    try:
        yield
    finally:
        if before is None:
            config.pop("daemon", None)
        else:
            config["daemon"] = before


def _how(processes: list[Any]) -> str:
    """How a process ended, in words."""
    for process in processes:
        process.join(5)
        code = process.exitcode
        if code is None:
            continue
        if code < 0:
            with contextlib.suppress(ValueError):
                return f"was ended by {signal.Signals(-code).name}"
        return f"ended with exit code {code}"
    return "ended"


def _name(processes: list[Any]) -> str:
    import socket

    return f"{socket.gethostname()}:{processes[0].pid}" if processes else ""


class LocalPool(Executor):
    """As many threads as jobs, each with a slot of its own. It takes tasks only, and knows what to do with them."""

    def __init__(self, jobs: int) -> None:
        self._max_workers = jobs
        self._threads = ThreadPoolExecutor(jobs, thread_name_prefix="quaver-slot")
        self._here = threading.local()
        self._slots: list[WorkerProcess] = []
        self._lock = threading.Lock()
        self._closed = False

    def submit(self, function: Callable[..., Any], /, *args: Any, **keywords: Any) -> Future[Any]:
        """Carry out a task; `function` is what other executors would have to be told."""
        return self._threads.submit(self._run, *args, **keywords)

    def _run(self, task: Task) -> Outcome:
        slot = getattr(self._here, "slot", None)
        if slot is None:
            with self._lock:
                slot = self._here.slot = WorkerProcess()
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
