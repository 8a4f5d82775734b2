"""What a user calls with: a keyword that is not known, or a value that cannot be, is named before any work."""

from __future__ import annotations

import functools
import inspect
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from quaver.errors import SettingsError
from quaver.suggestions import nearest

P = ParamSpec("P")
R = TypeVar("R")


def keywords_checked(function: Callable[P, R]) -> Callable[P, R]:
    """Refuse keywords that a function does not have before it is called, as `fit` does it with settings."""
    known = list(inspect.signature(function).parameters)

    @functools.wraps(function)
    def checked(*args: P.args, **keywords: P.kwargs) -> R:
        for name in keywords:
            if name not in known:
                close = nearest(name, known, count=1, cutoff=0.7)
                meant = f"did you mean {close[0]!r}? " if close else ""
                raise SettingsError(f"{function.__name__} has no keyword {name!r}; {meant}it has: {', '.join(known)}")
        return function(*args, **keywords)

    return checked


def check_metrics(**given: Any) -> None:
    """Functions by name."""
    for name, metrics in given.items():
        if metrics is not None and not (isinstance(metrics, Mapping) and all(map(callable, metrics.values()))):
            raise SettingsError(f"`{name}` must hold functions by name, like {{'worst': np.max}}, not {metrics!r:.60}")


def check_samples(samples: Any) -> None:
    """How many samples to look at."""
    if samples is not None and (not isinstance(samples, int) or isinstance(samples, bool) or samples < 1):
        raise SettingsError(f"`samples` must be a whole number of at least 1, or None for all, not {samples!r}")


def check_writable(folder: Path) -> None:
    """Better now than after all the work."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise SettingsError(f"cannot write the tables into {str(folder)!r}: {error.strerror}") from error
