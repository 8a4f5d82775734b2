"""Check the arguments of public functions before any work."""

from __future__ import annotations

import functools
import inspect
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import ParamSpec, TypeVar

from quaver.errors import SettingsError
from quaver.suggestions import nearest

P = ParamSpec("P")
R = TypeVar("R")


def keywords_checked(function: Callable[P, R]) -> Callable[P, R]:
    """Refuse unknown keywords of a function with a SettingsError that suggests the nearest, as `fit` does."""
    parameters = list(inspect.signature(function).parameters)

    @functools.wraps(function)
    def checked(*args: P.args, **keywords: P.kwargs) -> R:
        for name in keywords:
            if name not in parameters:
                close = nearest(name, parameters, count=1, cutoff=0.7)
                suggestion = f"did you mean {close[0]!r}? " if close else ""
                listed = ", ".join(parameters)
                raise SettingsError(f"{function.__name__} has no keyword {name!r}; {suggestion}it has: {listed}")
        return function(*args, **keywords)

    return checked


def check_metrics(**arguments: object) -> None:
    """Refuse an argument that is not a mapping from names to functions."""
    for name, metrics in arguments.items():
        if metrics is not None and not (isinstance(metrics, Mapping) and all(map(callable, metrics.values()))):
            raise SettingsError(f"`{name}` must hold functions by name, like {{'worst': np.max}}, not {metrics!r:.60}")


def check_samples(samples: object) -> None:
    """Refuse a number of samples that is not a whole number above 0."""
    if samples is not None and (not isinstance(samples, int) or isinstance(samples, bool) or samples < 1):
        raise SettingsError(f"`samples` must be a whole number of at least 1, or None for all, not {samples!r}")


def check_writable(folder: Path) -> None:
    """Refuse a folder that cannot be written, before any work."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise SettingsError(f"cannot write the tables into {str(folder)!r}: {error.strerror}") from error
