"""How the user's objects get to a worker: by import path where they have one, else by value."""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from quaver.errors import ExecutorError


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
