"""Turn settings into builtins to record them. Of an object only its name remains, because a repr may hold secrets."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Iterator, Mapping

import numpy as np

from quaver.engine.timing.objective import make_objective
from quaver.errors import QuaverError
from quaver.ops import OpConfig
from quaver.rules import rule_of
from quaver.strategies import Strategy, find_strategy
from quaver.types import PlainValue

# The key of the mapping that replaces an object inside options or rules.
ONLY_NAME = "only the name was kept"


def to_builtins(value: PlainValue) -> PlainValue:
    """Return data as builtins; an object becomes {ONLY_NAME: its name}."""
    if isinstance(value, OpConfig):
        return rule_of(value)
    if isinstance(value, Mapping):
        return {_key(key): to_builtins(item) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return sorted((to_builtins(item) for item in value), key=str)
    if isinstance(value, list | tuple):
        return [to_builtins(item) for item in value]
    if isinstance(value, np.generic | np.ndarray):
        return to_builtins(value.tolist())
    if isinstance(value, bool | bytes) or value is None:
        return value
    for kind in (str, int, float):
        if isinstance(value, kind):
            return kind(value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return {ONLY_NAME: qualified_name(value)}


def _key(key: PlainValue) -> int | str:
    if isinstance(key, str | bool | float) or key is None:
        return str(key)
    return int(key) if isinstance(key, int) else qualified_name(key)


def names_only(value: PlainValue) -> Iterator[str]:
    """Yield the names that replace objects in recorded settings."""
    if isinstance(value, Mapping):
        if set(value) == {ONLY_NAME}:
            yield str(value[ONLY_NAME])
        else:
            for item in value.values():
                yield from names_only(item)
    elif isinstance(value, list):
        for item in value:
            yield from names_only(item)


def strategy_name(value: PlainValue) -> str:
    """Return the name by which a strategy can be found again; if there is none, its module and class."""
    if isinstance(value, str):
        return str(value)
    kind = value if isinstance(value, type) else type(value)
    if not issubclass(kind, Strategy) or not kind.name or not _is_registered(kind):
        return qualified_name(value)
    # The name of an instance does not say which options it has.
    return kind.name if value is kind or not inspect.signature(kind).parameters else qualified_name(value)


def _is_registered(kind: type[Strategy]) -> bool:
    """Return True if the strategy is found by its name."""
    try:
        return find_strategy(kind.name) is kind
    except QuaverError:
        return False


def objective_name(value: PlainValue) -> str:
    """Return the name under which results of an objective are recorded, or else the name of the object."""
    if isinstance(value, str):
        return str(value)
    try:
        return make_objective(value).recorded_name
    except QuaverError:
        return qualified_name(value)


def qualified_name(value: PlainValue) -> str:
    """Return module and name of a function or a class, of a partial's function, or of an object's class."""
    while isinstance(value, functools.partial):
        value = value.func
    named = value if hasattr(value, "__qualname__") else type(value)
    module = getattr(named, "__module__", None)
    return f"{module}.{named.__qualname__}" if module else str(named.__qualname__)
