"""The code of a worker process: open what the run needs once, then carry out one task after another."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import os
import pickle  # nosec B403 - of the files that the run itself has written for its workers
import shutil
import socket
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from quaver.adapters import Adapter, Model, load_with
from quaver.engine.executors.base import Evaluation, Kind, Outcome, State, Task
from quaver.engine.executors.evaluate import evaluate_model, failed
from quaver.engine.executors.payload import CALIBRATION, EVAL_FUNC, MODEL, OPENING, PREFIX, SAMPLES, Opening
from quaver.engine.measurements import Bench, carry_out
from quaver.engine.scoring.evaluate import bind_reference
from quaver.engine.scoring.failures import message_of
from quaver.errors import ExecutorError, QuaverError
from quaver.files import locks
from quaver.files.temporary import is_orphaned, machine

FOLDER_PREFIX = "quaver-site-"
_LOCK_FILE = "held"


@contextlib.contextmanager
def machine_folder(site: str) -> Iterator[Path]:
    """Yield the folder of this machine that its workers of one run share. The last one to leave removes it."""
    place = Path(tempfile.gettempdir())
    _remove_unused(place)
    folder = place / f"{FOLDER_PREFIX}{os.getuid()}-{hashlib.sha256(site.encode()).hexdigest()[:16]}"
    while True:
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.stat().st_uid != os.getuid():
            raise PermissionError(f"{str(folder)!r} belongs to another user")
        with contextlib.suppress(FileNotFoundError):
            file = os.open(folder / _LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
            locks.acquire(file, shared=True)
            if (folder / _LOCK_FILE).exists() and os.path.samestat(os.fstat(file), os.stat(folder / _LOCK_FILE)):
                break
            os.close(file)  # another worker removed it meanwhile
    try:
        yield folder
    finally:
        os.close(file)
        _remove_unused(place)


def unpack(archive: bytes, folder: Path) -> None:
    """Unpack an archive into a folder, once; a later worker finds it complete."""
    if (folder / "whole").exists():
        return
    with open(folder / "unpacking", "w") as lock:
        locks.acquire(lock)
        if not (folder / "whole").exists():
            with tarfile.open(fileobj=io.BytesIO(archive)) as contents:
                contents.extractall(folder, filter="data")
            (folder / "whole").touch()


def _remove_unused(place: Path) -> None:
    for folder in place.glob(f"{FOLDER_PREFIX}{os.getuid()}-*"):
        with contextlib.suppress(OSError):
            file = os.open(folder / _LOCK_FILE, os.O_RDWR)
            try:
                if locks.try_acquire(file):
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(file)


class Absent(Exception):
    """This worker does not see the files of the run."""


class WorkerContext:
    """The open model of a run. What is opened must have the digests that the first task names."""

    def __init__(self, task: Task) -> None:
        with contextlib.ExitStack() as stack:
            folder = Path(task.site)
            is_shared_disk = (folder / OPENING).is_file()
            if not is_shared_disk:
                if task.archive is None:
                    raise Absent(task.site)
                folder = stack.enter_context(machine_folder(task.site))
                unpack(task.archive, folder)
            opening: Opening = _load((folder / OPENING).read_bytes())
            _import_as_the_run_does(opening)
            if is_shared_disk and opening.machine != machine():  # large weights do not belong on a network disk
                shared = stack.enter_context(machine_folder(task.site))
            else:
                shared = folder
            model = _model(opening, folder, task)
            options = replace(opening.options, folder=shared, threads=task.threads, shared=True)
            kind: type[Adapter] = _load(opening.kind)
            self.adapter = stack.enter_context(contextlib.closing(load_with(kind, model, options)))
            _check_versions(self.adapter.versions, opening.versions)
            _check("model", self.adapter.fingerprint, task.model)
            calibration = (folder / CALIBRATION).read_bytes()
            _check("calibration", hashlib.sha256(calibration).hexdigest(), task.calibration)
            self.adapter.restore(_load(calibration))
            self.ops = self.adapter.ops()
            self._folder, self._site = folder, folder if is_shared_disk else None
            self._stack = stack.pop_all()

    @functools.cached_property
    def eval_func(self) -> Callable[[Any], Any]:
        """Return the user's eval_func, loaded in this process."""
        try:
            eval_func = _load((self._folder / EVAL_FUNC).read_bytes())
        except BaseException as error:
            raise ExecutorError(
                f"eval_func cannot be loaded by a worker process: {message_of(error)}. Install what it needs "
                "there, or put it into a module that can be imported there"
            ) from error
        return bind_reference(eval_func, lambda: self.adapter.build(None))

    @functools.cached_property
    def bench(self) -> Bench:
        """Return what measurements run on: the model, and the probe samples of the run."""
        self.adapter.keep_probe_samples(list(_load((self._folder / SAMPLES).read_bytes())))
        return Bench(self.adapter, self.ops[-1].name, self.adapter.probe_samples)

    @property
    def is_over(self) -> bool:
        """Return whether the run has removed its folder, or has died."""
        return self._site is not None and (not self._site.exists() or is_orphaned(self._site.name, PREFIX))

    def close(self) -> None:
        """Close the model."""
        self._stack.close()


def _load(data: bytes) -> Any:
    return pickle.loads(data)  # nosec B301


def _import_as_the_run_does(opening: Opening) -> None:
    """Let this process import the modules that the run can, and resolve relative paths as it does."""
    sys.path += [entry for entry in opening.import_path if entry not in sys.path and os.path.exists(entry)]
    with contextlib.suppress(OSError):
        os.chdir(opening.cwd)


def _model(opening: Opening, folder: Path, task: Task) -> Any:
    if isinstance(opening.model, bytes):
        return _load(opening.model)
    if os.path.exists(opening.model):
        return opening.model
    sent = folder / MODEL / os.path.basename(opening.model)
    if sent.exists():
        return str(sent)
    if task.archive is None:
        raise Absent(opening.model)
    unpack(task.archive, folder)
    return str(sent)


def _check(subject: str, here: str, there: str) -> None:
    if here != there:
        raise ExecutorError(
            f"a worker has another {subject} than the run: its digest is {here[:12]}, not {there[:12]}. The file "
            "changed after the run began, or another file has the same path there: start a new run"
        )


def _check_versions(here: dict[str, str], there: dict[str, str]) -> None:
    for name, version in there.items():
        if here.get(name) != version:
            raise ExecutorError(
                f"a worker has {name} {here.get(name)}, and the run has {version}, which may build other models. "
                "Install the same versions on all machines"
            )


_contexts: dict[tuple[str, str, str, int], WorkerContext] = {}


def name() -> str:
    """Return the name of this worker, as trials record it."""
    return f"{socket.gethostname()}:{os.getpid()}"


def is_over() -> bool:
    """Return whether the run that this process works for has ended or was killed, as far as that is visible."""
    return any(context.is_over for context in list(_contexts.values()))


def prepare(task: Task) -> Outcome | None:
    """Open what the tasks of a run need, if it is not open; return an outcome if that is not possible."""
    try:
        context = _context_of(task)
        if task.kind is Kind.SCORE:
            _ = context.eval_func  # loaded here, so that its errors and its time are not those of the trial
    except Absent as error:
        return Outcome(State.ABSENT, Evaluation(error=str(error), worker=name()))
    except QuaverError as error:
        return Outcome(State.REFUSED, Evaluation(error=str(error), worker=name()), str(error))
    except BaseException as error:
        return _by_this_worker(failed(error), time.time())
    return None


def work(task: Task) -> Outcome:
    """Carry out a task. Ctrl-C does not reach workers, so every exception is an outcome."""
    context, started = _context_of(task), time.time()
    if task.kind is Kind.SCORE:
        return _by_this_worker(_score(task, context), started)
    start = time.monotonic()
    try:
        outcome = Outcome(State.DONE, result=_measure(task, context))
    except BaseException as error:
        outcome = failed(error, time.monotonic() - start)
    return _by_this_worker(outcome, started)


def _score(task: Task, context: WorkerContext) -> Outcome:
    with contextlib.ExitStack() as stack:

        def build() -> Model:
            return stack.enter_context(contextlib.closing(context.adapter.build(task.config(context.ops))))

        return evaluate_model(build, context.eval_func, task.reference)


def _measure(task: Task, context: WorkerContext) -> Any:
    if task.measurement is not None:
        return carry_out(context.bench, task.measurement)
    config = task.config(context.ops)
    assert config is not None
    return context.bench.errors.error(config, task.samples)


def _by_this_worker(outcome: Outcome, started: float) -> Outcome:
    """Return an outcome with the name of this worker, and without the exception, which may not survive pickling."""
    evaluation = replace(outcome.evaluation, worker=name(), started=started)
    return replace(outcome, evaluation=evaluation, exception=None)


def _context_of(task: Task) -> WorkerContext:
    """Return the open model of a task's run, and close that of an earlier run."""
    key = task.site, task.model, task.calibration, task.threads
    if key not in _contexts:
        while _contexts:
            _contexts.popitem()[1].close()
        _contexts[key] = WorkerContext(task)
    return _contexts[key]
