"""Warn the user of what matters, where no display shows it."""

from __future__ import annotations

import sys
import warnings

from quaver.engine.event_base import Event


def warn_of_notices(event: Event) -> None:
    """Turn notices into Python warnings: the observer of runs that have no other."""
    if event.is_notice:
        warnings.warn(event.line(), UserWarning, stacklevel=levels_to_the_caller())


def levels_to_the_caller() -> int:
    """Return the stack level of the first frame outside quaver, for `warnings.warn`."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).split(".")[0] == "quaver":
        level, frame = level + 1, frame.f_back
    return level
