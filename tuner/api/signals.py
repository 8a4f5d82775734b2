"""Handle SIGTERM, which schedulers and containers send, like Ctrl-C: the run ends with the best so far."""

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
    """Raise KeyboardInterrupt on SIGTERM for a while, unless the program handles SIGTERM itself."""
    is_main_thread = threading.current_thread() is threading.main_thread()
    if not is_main_thread or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt("SIGTERM")


# In a forked child, such as a worker of eval_func, SIGTERM has its usual meaning from the start. It is blocked during
# the fork, because the inherited handler would swallow a signal that arrives before it is removed.
_masks: list[set[signal.Signals | int]] = []


def _block() -> None:
    if signal.getsignal(signal.SIGTERM) is _interrupt:
        _masks.append(signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM]))


def _unblock() -> None:
    if _masks:
        signal.pthread_sigmask(signal.SIG_SETMASK, _masks.pop())


def _restore_default() -> None:
    if signal.getsignal(signal.SIGTERM) is _interrupt:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _unblock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_block, after_in_parent=_unblock, after_in_child=_restore_default)
