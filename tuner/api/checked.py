"""Keywords of what a user calls: one that a function does not have is an error that names those it has."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from quaver.errors import SettingsError
from quaver.nearest import nearest

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
