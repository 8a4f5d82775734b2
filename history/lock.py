"""One writer at a time: an advisory lock on the snapshot itself, gone with the process that holds it.

Where there is no `fcntl` (Windows), or a file system knows no locks, there is no lock: take care not to start two runs
in one workspace there.
"""

from __future__ import annotations

import logging
import os
import weakref
from pathlib import Path
from typing import Protocol

from quaver.errors import HistoryError

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

logger = logging.getLogger(__name__)


class _Open(Protocol):
    def fileno(self) -> int: ...
    def close(self) -> None: ...


_held: weakref.WeakSet[_Open] = weakref.WeakSet()


def lock(file: _Open, path: Path) -> None:
    """Make `file` the only writer of its snapshot until it is closed, or say who already is."""
    _held.add(file)
    if fcntl is None:
        return
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise HistoryError(
            f"{path} is being written by {_holder(file.fileno())}. Wait until it has ended, or use another workspace"
        ) from None
    except OSError as error:
        logger.warning("%s cannot be locked (%s); do not start a second run with it", path, error.strerror)


def _holder(descriptor: int) -> str:
    """Who has the lock, as far as the system tells."""
    status = os.fstat(descriptor)
    wanted = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    try:
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:  # Linux alone has it
        lines = []
    for line in lines:
        match line.split():
            case [_, "FLOCK", _, "WRITE", pid, place, *_] if place == wanted and pid.isdigit() and int(pid) > 0:
                return "this process" if int(pid) == os.getpid() else f"process {pid}"
    return "another process"


def _close_in_child() -> None:
    """A forked worker must not keep the lock alive after its parent has died, nor write."""
    for file in list(_held):
        file.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)
