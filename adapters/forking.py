"""What a forked child must not touch: sessions and hashes wait for threads that only its parent has."""

from __future__ import annotations

import ctypes
import os
import weakref
from typing import Any, Protocol


class Forkable(Protocol):
    """Something that can do without what its parent process had."""

    def after_fork(self) -> None:
        """Called in the child."""


_known: weakref.WeakSet[Any] = weakref.WeakSet()


def watch_for_fork(thing: Forkable) -> None:
    """Let a thing know when this process is the forked child of the one it was made in."""
    _known.add(thing)


def never_close(session: Any) -> None:
    """Keep an object for ever: to close a session would wait for its threads, and the end of the process does."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(session))


def _after_fork() -> None:
    for thing in list(_known):
        thing.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
