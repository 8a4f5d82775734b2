"""SIGTERM, as a scheduler or a container sends it, ends work as Ctrl-C does: in order, and with what there is."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn


@contextlib.contextmanager
def terminating() -> Iterator[None]:
    """While this lasts SIGTERM raises KeyboardInterrupt, unless the program has its own plans for it."""
    alone = threading.current_thread() is threading.main_thread()
    if not alone or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt("SIGTERM")


# In a forked child (a worker of eval_func, say) SIGTERM means what it usually does, from its first moment on: till then
# the signal waits, for a handler that is taken away too late would swallow it.
_before: list[set[signal.Signals | int]] = []


def _hold() -> None:
    if signal.getsignal(signal.SIGTERM) is _interrupt:
        _before.append(signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM]))


def _let_go() -> None:
    if _before:
        signal.pthread_sigmask(signal.SIG_SETMASK, _before.pop())


def _forget() -> None:
    if signal.getsignal(signal.SIGTERM) is _interrupt:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _let_go()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_hold, after_in_parent=_let_go, after_in_child=_forget)
