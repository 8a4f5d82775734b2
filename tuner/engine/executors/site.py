"""What workers need of a run, written once into a folder: the model, its calibration, samples and eval_func."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import pickle
import shutil
import sys
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from quaver.adapters import Adapter, AdapterOptions
from quaver.adapters.owner import is_orphaned, machine, marked
from quaver.engine.executors.sending import pack, pack_function
from quaver.engine.executors.task import Task
from quaver.errors import ExecutorError

# The folder of a run for its workers, in the workspace.
PREFIX = ".workers-"
OPENING, CALIBRATION, SAMPLES, EVAL_FUNC = "opening.pickle", "calibration.pickle", "samples.pickle", "eval_func.pickle"
# Where a model that comes in a parcel lies.
MODEL = "model"


@dataclass(frozen=True, slots=True)
class Opening:
    """How a worker opens the model.

    Attributes:
        kind: the adapter's class, as `pack` made it.
        model: the path of the model, or the object itself as `pack` made it.
        options: of the adapter.
        versions: of the packages that a built model depends on.
        machine: where the run is.
        import_path: where modules are looked for.
        cwd: the working directory.
    """

    kind: bytes
    model: str | bytes
    options: AdapterOptions
    versions: dict[str, str]
    machine: str
    import_path: tuple[str, ...]
    cwd: str


class Site:
    """The folder of a run for its workers, and the digests that they check."""

    def __init__(self, folder: Path, adapter: Adapter, calibration: dict[str, Any], model: Any) -> None:
        self._folder, self._adapter, self._model = folder, adapter, model
        self._calibration = _write(folder / CALIBRATION, pickle.dumps(calibration))

    @classmethod
    @contextlib.contextmanager
    def opened(
        cls,
        workspace: Path,
        adapter: Adapter,
        calibration: dict[str, Any],
        model: Any,
        options: AdapterOptions,
        eval_func: Callable[[Any], Any] | None,
    ) -> Iterator[Site]:
        """Write it, for a while. What a run that was killed left behind goes, too.

        Workers that only measure need no eval_func.
        """
        function = None if eval_func is None else pack_function(eval_func)
        opening = _opening(adapter, model, options)
        for name in os.listdir(workspace):
            if is_orphaned(name, PREFIX):
                shutil.rmtree(workspace / name, ignore_errors=True)
        with marked() as mark:
            folder = workspace / f"{PREFIX}{mark}"
            folder.mkdir(mode=0o700)
            try:
                site = cls(folder, adapter, calibration, model)
                if function is not None:
                    _write(folder / EVAL_FUNC, function)
                _write(folder / OPENING, pickle.dumps(opening))
                _write(folder / SAMPLES, pickle.dumps(list(adapter.kept)))
                yield site
            finally:
                shutil.rmtree(folder, ignore_errors=True)

    def addressed(self, task: Task, threads: int) -> Task:
        """The task with what a worker needs to find the folder and to check what it opens."""
        return replace(
            task,
            site=str(self._folder),
            model=self._adapter.fingerprint,
            calibration=self._calibration,
            threads=threads,
        )

    def parcel(self) -> bytes:
        """The content of the folder and the model, for machines that do not see either."""
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            for name in (OPENING, CALIBRATION, SAMPLES, EVAL_FUNC):
                if (self._folder / name).exists():
                    archive.add(self._folder / name, name)
            if isinstance(self._model, str | os.PathLike):
                path = Path(self._model)
                archive.add(path, f"{MODEL}/{path.name}")
                for beside in path.parent.glob(f"{path.name}?data"):  # where large constants usually lie
                    archive.add(beside, f"{MODEL}/{beside.name}")
        return buffer.getvalue()


def _opening(adapter: Adapter, model: Any, options: AdapterOptions) -> Opening:
    if isinstance(model, str | os.PathLike):
        sent: str | bytes = os.path.abspath(model)
    else:
        try:
            sent = pack(model)
        except Exception as error:
            raise ExecutorError(
                f"the model, a {type(model).__name__}, cannot be sent to worker processes ({error}): save it to a file "
                "and give its path"
            ) from error
    path = tuple(os.path.abspath(entry) for entry in sys.path)
    return Opening(pack(type(adapter)), sent, options, adapter.versions, machine(), path, os.getcwd())


def _write(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    return hashlib.sha256(data).hexdigest()
