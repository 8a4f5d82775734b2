"""What runs in a worker process: open what the run needs, once; then build and score, task by task."""

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

from quaver.adapters import Adapter, load_with
from quaver.engine.executors.base import Kind, Outcome, State, Task
from quaver.engine.executors.errors import want_of_space
from quaver.engine.executors.payload import CALIBRATION, EVAL_FUNC, MODEL, OPENING, PREFIX, SAMPLES, Opening
from quaver.engine.measurements import Bench, carry_out
from quaver.engine.scoring.evaluate import bind_reference, score
from quaver.engine.scoring.failures import message_of, traceback_of
from quaver.errors import ExecutorError, QuaverError
from quaver.files import locks
from quaver.files.temporary import is_orphaned, machine

FOLDER_PREFIX = "quaver-site-"
_HELD = "held"


@contextlib.contextmanager
def machine_folder(site: str) -> Iterator[Path]:
    """The folder for a site on this machine."""
    place = Path(tempfile.gettempdir())
    _remove_unused(place)
    folder = place / f"{FOLDER_PREFIX}{os.getuid()}-{hashlib.sha256(site.encode()).hexdigest()[:16]}"
    while True:
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.stat().st_uid != os.getuid():
            raise PermissionError(f"{str(folder)!r} belongs to another user")
        with contextlib.suppress(FileNotFoundError):
            file = os.open(folder / _HELD, os.O_RDWR | os.O_CREAT, 0o600)
            locks.acquire(file, shared=True)
            if (folder / _HELD).exists() and os.path.samestat(os.fstat(file), os.stat(folder / _HELD)):
                break
            os.close(file)  # it was removed in between
    try:
        yield folder
    finally:
        os.close(file)
        _remove_unused(place)


def unpack(parcel: bytes, folder: Path) -> None:
    """Put the content of a parcel there, once; a worker that comes later finds it whole."""
    if (folder / "whole").exists():
        return
    with open(folder / "unpacking", "w") as lock:
        locks.acquire(lock)
        if not (folder / "whole").exists():
            with tarfile.open(fileobj=io.BytesIO(parcel)) as archive:
                archive.extractall(folder, filter="data")
            (folder / "whole").touch()


def _remove_unused(place: Path) -> None:
    for folder in place.glob(f"{FOLDER_PREFIX}{os.getuid()}-*"):
        with contextlib.suppress(OSError):
            file = os.open(folder / _HELD, os.O_RDWR)
            try:
                if locks.try_acquire(file):
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(file)


class Absent(Exception):
    """The files of the run are not to be seen here."""


class WorkerContext:
    """An open model. Everything that was opened is checked by the digests of the task that came first."""

    def __init__(self, task: Task) -> None:
        with contextlib.ExitStack() as stack:
            folder = Path(task.site)
            there = (folder / OPENING).is_file()
            if not there:
                if task.parcel is None:
                    raise Absent(task.site)
                folder = stack.enter_context(machine_folder(task.site))
                unpack(task.parcel, folder)
            opening: Opening = _load((folder / OPENING).read_bytes())
            _look_where_the_run_does(opening)
            if there and opening.machine != machine():  # a disk that is shared is no place for large weights
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
            self._folder, self._site = folder, folder if there else None
            self._stack = stack.pop_all()

    @functools.cached_property
    def eval_func(self) -> Callable[[Any], Any]:
        """The user's, in this process."""
        try:
            found = _load((self._folder / EVAL_FUNC).read_bytes())
        except BaseException as error:
            raise ExecutorError(
                f"eval_func cannot be loaded by a worker process: {message_of(error)}. What it needs must "
                "be installed there, or lie in a module that can be imported there"
            ) from error
        return bind_reference(found, lambda: self.adapter.build(None))

    @functools.cached_property
    def bench(self) -> Bench:
        """What measurements run on: the model, and the few calibration samples that the run has."""
        self.adapter.keep_probe_samples(list(_load((self._folder / SAMPLES).read_bytes())))
        return Bench(self.adapter, self.ops[-1].name, self.adapter.probe_samples)

    @property
    def is_over(self) -> bool:
        """Whether the run has removed its folder, or is dead."""
        return self._site is not None and (not self._site.exists() or is_orphaned(self._site.name, PREFIX))

    def close(self) -> None:
        """Let go of it."""
        self._stack.close()


def _load(data: bytes) -> Any:
    return pickle.loads(data)  # nosec B301


def _look_where_the_run_does(opening: Opening) -> None:
    """Modules that the run can import can be imported here, and relative paths mean the same."""
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
    if task.parcel is None:
        raise Absent(opening.model)
    unpack(task.parcel, folder)
    return str(sent)


def _check(what: str, here: str, there: str) -> None:
    if here != there:
        raise ExecutorError(
            f"a worker has another {what} than the run: its digest is {here[:12]}, not {there[:12]}. The file has "
            "changed since the run began, or lies there under the same path: start a new run"
        )


def _check_versions(here: dict[str, str], there: dict[str, str]) -> None:
    for name, version in there.items():
        if here.get(name) != version:
            raise ExecutorError(
                f"a worker has {name} {here.get(name)}, and the run {version}: models that are built differ by it. "
                "Install the same versions on all machines"
            )


_workplaces: dict[tuple[str, str, str, int], WorkerContext] = {}


def name() -> str:
    """This worker, as trials record it."""
    return f"{socket.gethostname()}:{os.getpid()}"


def is_over() -> bool:
    """Whether the run that this process works for has ended, or was killed; as far as that can be seen from here."""
    return any(place.is_over for place in list(_workplaces.values()))


def prepare(task: Task) -> Outcome | None:
    """Open what tasks of this run need, unless it is; what is in the way, if something is."""
    try:
        _workplace(task)
        if task.kind is Kind.SCORE:
            _workplace(task).eval_func  # noqa: B018 - an error of its own, and no time of the trial
    except Absent as error:
        return Outcome(State.ABSENT, error=str(error), worker=name())
    except QuaverError as error:
        return Outcome(State.REFUSED, error=str(error), said=str(error), worker=name())
    except BaseException as error:
        return _failed(error, time.time())
    return None


def work(task: Task) -> Outcome:
    """Carry out a task."""
    place = _workplace(task)
    begin, started = time.monotonic(), time.time()
    built = begin
    try:
        config = task.config(place.ops)
        if task.kind is Kind.ERROR:
            assert config is not None
            value = place.bench.errors.error(config, task.samples)
            spent = time.monotonic() - begin
            return Outcome(State.DONE, value, seconds=spent, worker=name(), started=started)
        if task.measurement is not None:
            measured = carry_out(place.bench, task.measurement)
            spent = time.monotonic() - begin
            return Outcome(State.DONE, seconds=spent, worker=name(), started=started, result=measured)
        model = place.adapter.build(config)
        try:
            built = time.monotonic()
            found = score(place.eval_func, model, task.reference)
            done = time.monotonic()
            digest, size = model.sha256, model.size
        finally:
            model.close()
    except BaseException as error:  # sys.exit and KeyboardInterrupt, too: Ctrl-C does not reach workers
        failed = _failed(error, started)
        return replace(failed, seconds=time.monotonic() - built, build_seconds=built - begin)
    building = built - begin + time.monotonic() - done
    return Outcome(
        State.DONE,
        score=found,
        seconds=done - built,
        build_seconds=building,
        model_hash=digest,
        model_size=size,
        worker=name(),
        started=started,
    )


def _failed(error: BaseException, started: float) -> Outcome:
    state = State.FULL if want_of_space(error) else State.FAILED
    return Outcome(state, worker=name(), started=started, error=traceback_of(error), said=message_of(error))


def _workplace(task: Task) -> WorkerContext:
    key = task.site, task.model, task.calibration, task.threads
    if key not in _workplaces:
        while _workplaces:  # of an earlier run
            _workplaces.popitem()[1].close()
        _workplaces[key] = WorkerContext(task)
    return _workplaces[key]
