"""How the user's objects get to a worker: by import path where they have one, else by value."""

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
    """A function for workers. An error names what of it cannot be sent, and how to write it."""
    try:
        return pack(function)
    except Exception as error:
        culprit = _culprit(function)
        named = f"{culprit[0]} is of type {culprit[1]}, which cannot be pickled" if culprit else f"{error}"
        raise ExecutorError(
            f"{what} cannot be sent to worker processes: {named}. Make it inside {what} when it is first needed, or "
            f"write {what} in a module of its own (my_eval.py, `from my_eval import {what}`), which every worker "
            "imports for itself; or run in this process, with n_jobs=1 and isolate=False"
        ) from error


def pack(thing: Any) -> bytes:
    """Any object for workers: what lies in a module that they can import goes by its name, all else by value."""
    import cloudpickle

    with contextlib.ExitStack() as stack:
        for module in _modules(thing):
            if not _importable(module):
                stack.enter_context(_by_value(module))
        return bytes(cloudpickle.dumps(thing))


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


def _modules(thing: Any) -> Iterator[ModuleType]:
    """Where a function or an object is from."""
    for one in (thing, type(thing), getattr(thing, "func", None), getattr(thing, "__self__", None)):
        name = getattr(one, "__module__", None)
        module = sys.modules.get(name) if isinstance(name, str) else None
        if module is not None and module.__name__ not in ("__main__", "builtins", "functools"):
            yield module


def _importable(module: ModuleType) -> bool:
    """Whether another process that looks in the same places finds this very file under this name."""
    file = getattr(module, "__file__", None)
    if file is None:
        return module.__name__ in sys.builtin_module_names
    try:
        return bool(_find(module.__name__) == file)
    except (ImportError, ValueError, AttributeError, KeyError):
        return False


def _find(name: str) -> str | None:
    """The file that an import of this name would find; a module that is loaded does not hide it."""
    parent, _, _ = name.rpartition(".")
    path = sys.modules[parent].__path__ if parent else None
    for finder in sys.meta_path:
        spec = finder.find_spec(name, path, None) if hasattr(finder, "find_spec") else None
        if spec is not None:
            return spec.origin
    return None


def _culprit(function: Any) -> tuple[str, str] | None:
    """The name and the type of what cannot be pickled in a function, a bound method or an object."""
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
        seen = inspect.getclosurevars(inner)
        for name, value in {**seen.nonlocals, **seen.globals}.items():
            yield f"the variable {name!r} it uses", value
        for name, value in zip(inner.__code__.co_varnames, inner.__defaults__ or (), strict=False):
            yield f"a default value ({name!r} or a later one)", value
    else:
        for name, value in getattr(function, "__dict__", {}).items():
            yield f"its attribute {name!r}", value
        for name in ("func", "args", "keywords"):  # of a functools.partial
            if hasattr(function, name):
                yield f"its part {name!r}", getattr(function, name)


# The folder of a run for its workers, in the workspace.
PREFIX = ".workers-"
OPENING, CALIBRATION, SAMPLES, EVAL_FUNC = "opening.pickle", "calibration.pickle", "samples.pickle", "eval_func.pickle"
# Where a model that comes in an archive lies.
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


class RunPayload:
    """The folder of a run for its workers, and the digests that they check."""

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
                _write(folder / SAMPLES, pickle.dumps(list(adapter.probe_samples)))
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

    def archive(self) -> bytes:
        """The content of the folder and the model, for machines that do not see either."""
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            for name in (OPENING, CALIBRATION, SAMPLES, EVAL_FUNC):
                if (self._folder / name).exists():
                    tar.add(self._folder / name, name)
            if isinstance(self._model, str | os.PathLike):
                path = Path(self._model)
                tar.add(path, f"{MODEL}/{path.name}")
                for beside in path.parent.glob(f"{path.name}?data"):  # where large constants usually lie
                    tar.add(beside, f"{MODEL}/{beside.name}")
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
                "and give its path"
            ) from error
    path = tuple(os.path.abspath(entry) for entry in sys.path)
    return Opening(pack(type(adapter)), sent, options, adapter.versions, machine(), path, os.getcwd())


def _write(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    return hashlib.sha256(data).hexdigest()
