"""Worker processes: each carries out one task at a time. The run survives if a worker dies or is ended.

Workers of every executor use them, one for each thread, so a death always belongs to one known task.
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
from quaver.engine.executors.base import (
    Backend,
    Evaluation,
    Outcome,
    Pool,
    PoolRequest,
    State,
    Task,
    cores,
    threads_per_job,
)
from quaver.errors import ExecutorError
from quaver.files.temporary import temporary_folder

# Lines of a dead worker's stderr that are recorded. Judgement: a fatal error of a runtime fits.
LAST_LINES = 20
# Bytes at the end of a worker's stderr that are read. Judgement: an evaluation may write without end.
MAX_STDERR = 64 * 2**10
# Bytes above which the file of a worker's stderr is cut. Judgement: small on any disk.
MAX_STDERR_FILE = 2**22
# Seconds between a worker's checks that its parent is alive. Judgement: a stray lives no longer than that.
PARENT_INTERVAL = 1.0
# The variables that tell libraries how many threads to start; without them they start one for each core.
THREADS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)


class WorkerProcess:
    """A process that carries out tasks one by one. It is started when it is needed, and restarted after a death.

    Args:
        idle: seconds without a task after which the process ends to free its memory; None is never.
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
        """Carry out a task and return its outcome."""
        from loky.process_executor import BrokenProcessPool

        processes: list[Any] = []
        begin, started = time.monotonic(), time.time()
        try:
            try:
                refused: Outcome | None = self._call(processes, None, worker.prepare, task)
            except BrokenProcessPool:  # it may have died while it was idle
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
        self._show_stderr()
        return outcome

    def close(self) -> None:
        """End the process, even during a task. Other threads may call this."""
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
                initializer=_prepare_process,
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
        """Return the last lines of the process's stderr, for the message about its end."""
        lines = self._stderr_end().strip().splitlines()[-LAST_LINES:]
        return "\n".join([". Its last lines were:", *lines]) if lines else ""

    def _show_stderr(self) -> None:
        """Show the user what eval_func wrote to stderr."""
        text = self._stderr_end()
        if text:
            with contextlib.suppress(OSError):
                os.truncate(self._place / "stderr", 0)  # type: ignore[operator]
            with contextlib.suppress(Exception):
                sys.stderr.write(text)
                sys.stderr.flush()

    def _stderr_end(self) -> str:
        """Return the end of what the process wrote to stderr."""
        assert self._place is not None
        with contextlib.suppress(OSError):
            return read_end(self._place / "stderr")
        return ""


_here = threading.local()
# Seconds after which an idle worker of a cluster frees its memory. Judgement: longer than between two tasks of a run.
IDLE = 60.0


def carry_out(task: Task) -> Outcome:
    """Carry out a task in the process of this thread. This is the function that other executors are given."""
    process = getattr(_here, "process", None)
    if process is None:
        process = _here.process = WorkerProcess(IDLE)
        atexit.register(process.close)
    outcome: Outcome = process.run(task)
    return outcome


def _prepare_process(stderr: str, parent: int) -> None:
    """Prepare a new process: write stderr to a file, and end when the parent does."""
    try:
        file = os.open(stderr, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    except FileNotFoundError:  # the run was over before this process began
        os._exit(1)
    os.dup2(file, 2)
    os.close(file)
    faulthandler.enable(all_threads=False)
    _end_with_parent(parent, stderr)


def read_end(path: str | Path) -> str:
    """Return the last `MAX_STDERR` bytes of a file as text, with a line that says how much is left out."""
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - MAX_STDERR, 0))
        text = file.read(MAX_STDERR).decode(errors="replace")
    return text if size <= MAX_STDERR else f"[{size - MAX_STDERR:,} bytes left out]\n{text}"


def cut_to_end(path: str) -> None:
    """Cut a file that has grown too large to its end, while another process appends to it."""
    with contextlib.suppress(OSError):
        if os.path.getsize(path) > MAX_STDERR_FILE:
            end = read_end(path)
            with open(path, "r+b") as file:
                file.write(end.encode())
                file.truncate()


def _end_with_parent(parent: int, stderr: str) -> None:
    """End this process with its parent and with the run: at once on Linux, elsewhere within seconds."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os._exit(1)

    def look() -> None:
        while os.getppid() == parent and not worker.is_over():
            time.sleep(PARENT_INTERVAL)
            cut_to_end(stderr)
        os._exit(1)

    threading.Thread(target=look, daemon=True, name="quaver-parent").start()


@contextlib.contextmanager
def _without_interrupts() -> Iterator[None]:
    """Hide Ctrl-C from new workers, because the run decides when they end."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _may_have_children() -> Iterator[None]:
    """Let a daemon, as workers of Dask are, start a process; it ends with the daemon anyway."""
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
    """Return how a process ended, in words."""
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
    """An executor with one thread and one worker process for each job. It takes tasks only."""

    def __init__(self, jobs: int) -> None:
        self._max_workers = jobs
        self._threads = ThreadPoolExecutor(jobs, thread_name_prefix="quaver-slot")
        self._here = threading.local()
        self._processes: list[WorkerProcess] = []
        self._lock = threading.Lock()
        self._closed = False

    def submit(self, function: Callable[..., Any], /, *args: Any, **keywords: Any) -> Future[Any]:
        """Carry out a task; `function` is there for the interface of executors and not used."""
        return self._threads.submit(self._run, *args, **keywords)

    def _run(self, task: Task) -> Outcome:
        process = getattr(self._here, "process", None)
        if process is None:
            with self._lock:
                process = self._here.process = WorkerProcess()
                self._processes.append(process)
                if self._closed:
                    process.close()
        return process.run(task)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End all processes, even during a task."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            self._closed = True
            processes = list(self._processes)
        for process in processes:
            process.close()
        self._threads.shutdown(wait=wait)


@contextlib.contextmanager
def open_processes(request: PoolRequest) -> Iterator[Pool]:
    """Open worker processes of this machine: one, as many as jobs, or one for each core if `jobs` is -1."""
    jobs = 1 if request.jobs is None else request.jobs
    count = jobs if jobs > 0 else max(cores() + 1 + jobs, 1)
    pool = LocalPool(count)
    try:
        yield Pool(pool, count, threads_per_job(request.threads, count), stop=pool.shutdown)
    finally:
        pool.shutdown()


BACKEND = Backend("loky", open_processes, ("LokyBackend", "MultiprocessingBackend"), has_scheduler=False)
