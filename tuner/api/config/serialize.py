"""Settings as builtins, as they are kept with a run. Of objects only the name is kept: a repr may hold secrets."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from quaver.engine.timing.objective import make_objective
from quaver.errors import QuaverError
from quaver.ops import OpConfig
from quaver.strategies import Strategy, find_strategy
from quaver.types import PlainDict

# The key of what stands for an object that lies inside options or rules.
ONLY_NAME = "only the name was kept"


def to_builtins(value: Any) -> Any:
    """Data as builtins; an object in it becomes {ONLY_NAME: its name}."""
    if isinstance(value, OpConfig):
        return _rule(value)
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


def _key(key: Any) -> int | str:
    if isinstance(key, str | bool | float) or key is None:
        return str(key)
    return int(key) if isinstance(key, int) else qualified_name(key)


def names_only(value: Any) -> Iterator[str]:
    """The objects in plain data of which there is nothing but the name."""
    if isinstance(value, Mapping):
        if set(value) == {ONLY_NAME}:
            yield str(value[ONLY_NAME])
        else:
            for item in value.values():
                yield from names_only(item)
    elif isinstance(value, list):
        for item in value:
            yield from names_only(item)


def strategy_name(value: Any) -> str:
    """What a strategy can be found by: the name of a known one, else module and class, which cannot."""
    if isinstance(value, str):
        return str(value)
    kind = value if isinstance(value, type) else type(value)
    if not issubclass(kind, Strategy) or not kind.name or not _is_known(kind):
        return qualified_name(value)
    # An instance may have been made with options, of which its name says nothing.
    return kind.name if value is kind or not inspect.signature(kind).parameters else qualified_name(value)


def _is_known(kind: type[Strategy]) -> bool:
    """Whether a strategy's name leads to it."""
    try:
        return find_strategy(kind.name) is kind
    except QuaverError:
        return False


def objective_name(value: Any) -> str:
    """What the figures of an objective are recorded under, if it is one; what it is called otherwise."""
    if isinstance(value, str):
        return str(value)
    try:
        return make_objective(value).recorded_name
    except QuaverError:
        return qualified_name(value)


def qualified_name(value: Any) -> str:
    """Module and name of a function or a class; of any other object those of its class, of a partial its function's."""
    while isinstance(value, functools.partial):
        value = value.func
    named = value if hasattr(value, "__qualname__") else type(value)
    module = getattr(named, "__module__", None)
    return f"{module}.{named.__qualname__}" if module else str(named.__qualname__)


def _rule(choice: OpConfig) -> PlainDict:
    """A choice as a rule that allows it alone (see `quaver.rules`)."""
    activation = {"dtype": choice.precision, "algorithm": choice.calibration, "scheme": choice.scheme}
    parts = {"activation": {**activation, "mode": choice.mode}, "weight": {"granularity": choice.granularity}}
    return {
        part: {key: [str(value)] for key, value in said.items() if value}
        for part, said in parts.items()
        if any(said.values())
    }
