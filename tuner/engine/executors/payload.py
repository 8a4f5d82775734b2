"""Send the user's model and eval_func to workers: by import path where they have one, else by value."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import io
import os
import pickle
import shutil
import sys
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from quaver.adapters import Adapter, AdapterOptions
from quaver.engine.executors.base import Task
from quaver.errors import ExecutorError
from quaver.files.temporary import is_orphaned, machine, marked
from quaver.types import EvalFunc, ModelLike, PlainDict


def pack_function(function: Callable[..., Any], what: str = "eval_func") -> bytes:
    """Pickle a function for workers. An error names the part that cannot be sent, and how to rewrite it."""
    try:
        return pack(function)
    except Exception as error:
        culprit = _culprit(function)
        detail = f"{culprit[0]} is of type {culprit[1]}, which cannot be pickled" if culprit else f"{error}"
        raise ExecutorError(
            f"{what} cannot be sent to worker processes: {detail}. Create it inside {what} when it is first needed, or "
            f"write {what} in a module of its own (my_eval.py, `from my_eval import {what}`), which every worker "
            "imports for itself; or run in this process, with n_jobs=1 and isolate=False"
        ) from error


def pack(value: object) -> bytes:
    """Pickle an object for workers: by name if it is in a module that they can import, else by value."""
    import cloudpickle

    with contextlib.ExitStack() as stack:
        for module in _modules(value):
            if not _importable(module):
                stack.enter_context(_by_value(module))
        return bytes(cloudpickle.dumps(value))


@contextlib.contextmanager
def _by_value(module: ModuleType) -> Iterator[None]:
    import cloudpickle

    if module.__name__ in cloudpickle.list_registry_pickle_by_value():
        yield
        return
    cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def _modules(value: object) -> Iterator[ModuleType]:
    """Yield the modules that a function or an object comes from."""
    for owner in (value, type(value), getattr(value, "func", None), getattr(value, "__self__", None)):
        name = getattr(owner, "__module__", None)
        module = sys.modules.get(name) if isinstance(name, str) else None
        if module is not None and module.__name__ not in ("__main__", "builtins", "functools"):
            yield module


def _importable(module: ModuleType) -> bool:
    """Return whether another process with the same import path finds this very file under this name."""
    file = getattr(module, "__file__", None)
    if file is None:
        return module.__name__ in sys.builtin_module_names
    try:
        return bool(_find(module.__name__) == file)
    except (ImportError, ValueError, AttributeError, KeyError):
        return False


def _find(name: str) -> str | None:
    """Return the file that an import of this name would find, even if a module of this name is loaded."""
    parent, _, _ = name.rpartition(".")
    path = sys.modules[parent].__path__ if parent else None
    for finder in sys.meta_path:
        spec = finder.find_spec(name, path, None) if hasattr(finder, "find_spec") else None
        if spec is not None:
            return spec.origin
    return None


def _culprit(function: Any) -> tuple[str, str] | None:
    """Return the name and the type of the part of a function, method or object that cannot be pickled."""
    import cloudpickle

    for name, value in _parts(function):
        try:
            cloudpickle.dumps(value)
        except Exception:
            inner = _culprit(value) if inspect.isfunction(value) or hasattr(value, "__dict__") else None
            if inner is not None and not inspect.ismodule(value):
                return f"{name}, in which {inner[0]}", inner[1]
            return name, type(value).__qualname__
    return None


def _parts(function: Any) -> Iterator[tuple[str, Any]]:
    owner = getattr(function, "__self__", None)
    if owner is not None and not inspect.ismodule(owner):
        for name, value in getattr(owner, "__dict__", {}).items():
            yield f"its attribute {name!r}", value
    inner = getattr(function, "__func__", function)
    if inspect.isfunction(inner):
        variables = inspect.getclosurevars(inner)
        for name, value in {**variables.nonlocals, **variables.globals}.items():
            yield f"the variable {name!r} it uses", value
        for name, value in zip(inner.__code__.co_varnames, inner.__defaults__ or (), strict=False):
            yield f"a default value ({name!r} or a later one)", value
    else:
        for name, value in getattr(function, "__dict__", {}).items():
            yield f"its attribute {name!r}", value
        for name in ("func", "args", "keywords"):  # of a functools.partial
            if hasattr(function, name):
                yield f"its part {name!r}", getattr(function, name)


# The prefix of the folder in the workspace that a run prepares for its workers.
PREFIX = ".workers-"
OPENING, CALIBRATION, SAMPLES, EVAL_FUNC = "opening.pickle", "calibration.pickle", "samples.pickle", "eval_func.pickle"
# The folder of the model in an archive.
MODEL = "model"


@dataclass(frozen=True, slots=True)
class Opening:
    """Everything that a worker needs to open the model.

    Attributes:
        kind: the class of the adapter, pickled.
        model: the path of the model, or the object itself, pickled.
        options: the options of the adapter.
        versions: versions of the packages that a built model depends on.
        machine: the machine of the run.
        import_path: the folders that the run imports modules from.
        cwd: its working directory.
    """

    kind: bytes
    model: str | bytes
    options: AdapterOptions
    versions: dict[str, str]
    machine: str
    import_path: tuple[str, ...]
    cwd: str


class RunPayload:
    """The folder that a run prepares for its workers, and the digests that they check."""

    def __init__(self, folder: Path, adapter: Adapter, calibration: PlainDict, model: ModelLike) -> None:
        self._folder, self._adapter, self._model = folder, adapter, model
        self._calibration = _write(folder / CALIBRATION, pickle.dumps(calibration))

    @classmethod
    @contextlib.contextmanager
    def opened(
        cls,
        workspace: Path,
        adapter: Adapter,
        calibration: PlainDict,
        model: ModelLike,
        options: AdapterOptions,
        eval_func: EvalFunc | None,
    ) -> Iterator[RunPayload]:
        """Write the folder, and remove it at the end. Folders of killed runs are removed as well.

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
                _write(folder / SAMPLES, pickle.dumps(list(adapter.probe_samples)))
                yield site
            finally:
                shutil.rmtree(folder, ignore_errors=True)

    def addressed(self, task: Task, threads: int) -> Task:
        """Return a task with the folder, and with the digests of what a worker opens there."""
        return replace(
            task,
            site=str(self._folder),
            model=self._adapter.fingerprint,
            calibration=self._calibration,
            threads=threads,
        )

    def archive(self) -> bytes:
        """Return the content of the folder and the model, for machines that see neither."""
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            for name in (OPENING, CALIBRATION, SAMPLES, EVAL_FUNC):
                if (self._folder / name).exists():
                    tar.add(self._folder / name, name)
            if isinstance(self._model, str | os.PathLike):
                path = Path(self._model)
                tar.add(path, f"{MODEL}/{path.name}")
                for data in path.parent.glob(f"{path.name}?data"):  # the usual name of a file of large constants
                    tar.add(data, f"{MODEL}/{data.name}")
        return buffer.getvalue()


def _opening(adapter: Adapter, model: ModelLike, options: AdapterOptions) -> Opening:
    if isinstance(model, str | os.PathLike):
        sent: str | bytes = os.path.abspath(model)
    else:
        try:
            sent = pack(model)
        except Exception as error:
            raise ExecutorError(
                f"the model, a {type(model).__name__}, cannot be sent to worker processes ({error}): save it to a file "
                "and pass its path"
            ) from error
    path = tuple(os.path.abspath(entry) for entry in sys.path)
    return Opening(pack(type(adapter)), sent, options, adapter.versions, machine(), path, os.getcwd())


def _write(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    return hashlib.sha256(data).hexdigest()
