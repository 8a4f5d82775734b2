"""What a worker has open: the model, its calibration and eval_func, once for all tasks of a run."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import pickle  # nosec B403 - of the files that the run itself has written for its workers
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from quaver.adapters import Adapter
from quaver.adapters.owner import is_orphaned, machine
from quaver.engine.evaluation import referred
from quaver.engine.executors.machine_folder import machine_folder, unpack
from quaver.engine.executors.site import CALIBRATION, EVAL_FUNC, MODEL, OPENING, PREFIX, SAMPLES, Opening
from quaver.engine.executors.task import Task
from quaver.engine.failures import message_of
from quaver.engine.measurements import Bench
from quaver.errors import ExecutorError


class Absent(Exception):
    """The files of the run are not to be seen here."""


class Workplace:
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
            self.adapter = stack.enter_context(contextlib.closing(kind.take(model, options)))
            _check_versions(self.adapter.versions, opening.versions)
            _check("model", self.adapter.fingerprint, task.model)
            calibration = (folder / CALIBRATION).read_bytes()
            _check("calibration", hashlib.sha256(calibration).hexdigest(), task.calibration)
            self.adapter.restore(_load(calibration))
            self.ops = self.adapter.inspect()
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
        return referred(found, lambda: self.adapter.build(None))

    @functools.cached_property
    def bench(self) -> Bench:
        """What measurements run on: the model, and the few calibration samples that the run has."""
        self.adapter.keep(list(_load((self._folder / SAMPLES).read_bytes())))
        return Bench(self.adapter, self.ops[-1].name, self.adapter.kept)

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
