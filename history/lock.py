"""One writer at a time: an advisory lock on the snapshot itself, gone with the process that holds it.

Where there is no `fcntl`, or a file system knows no locks, a file beside the snapshot names the owner instead. It is
made in one step or not at all, and looked at before each append; one that a killed process left behind is taken over.
"""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from quaver.errors import HistoryError
from quaver.history.owner import OwnerFile, is_dead, read_owner

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

logger = logging.getLogger(__name__)


class _Open(Protocol):
    def fileno(self) -> int: ...
    def close(self) -> None: ...


_held: weakref.WeakSet[_Open] = weakref.WeakSet()


class Lock:
    """What keeps others from writing a snapshot.

    Attributes:
        check: raises if it is not so any more.
        release: lets others write.
    """

    def __init__(self, owner: OwnerFile | None = None) -> None:
        self.check: Callable[[], None] = _nothing if owner is None else owner.check
        self.release: Callable[[], None] = _nothing if owner is None else owner.release


def lock(file: _Open, path: Path) -> Lock:
    """Make `file` the only writer of its snapshot until it is closed and released, or say who already is."""
    _held.add(file)
    if fcntl is not None:
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            return Lock()
        except BlockingIOError:
            raise HistoryError(
                f"{path} is being written by {_holder(file.fileno())}. Wait until it has ended, or use another "
                "workspace"
            ) from None
        except OSError as error:
            logger.info("%s cannot be locked (%s); a file beside it names the owner", path, error.strerror)
    return Lock(OwnerFile.take(path))


def _nothing() -> None:
    """The system watches over a real lock."""


def being_written(path: Path) -> bool:
    """Whether a process is writing a snapshot, found out without disturbing one that begins to."""
    if (owner := read_owner(path)) and not is_dead(owner):
        return True
    try:
        with path.open("rb") as file:
            if _LOCKS.exists():
                return _locker(file.fileno()) is not None
            if fcntl is None:
                return False
            try:
                fcntl.flock(file.fileno(), fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
    except OSError:
        pass
    return False


_LOCKS = Path("/proc/locks")  # Linux alone has it


def _holder(descriptor: int) -> str:
    """Who has the lock, as far as the system tells."""
    found = _locker(descriptor)
    if found is None:
        return "another process"
    return "this process" if found == os.getpid() else f"process {found}"


def _locker(descriptor: int) -> int | None:
    """The process that has the lock; None if the system tells of none."""
    status = os.fstat(descriptor)
    wanted = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    try:
        lines = _LOCKS.read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        match line.split():
            case [_, "FLOCK", _, "WRITE", pid, place, *_] if place == wanted and pid.isdigit() and int(pid) > 0:
                return int(pid)
    return None


def _close_in_child() -> None:
    """A forked worker must not keep the lock alive after its parent has died, nor write."""
    for file in list(_held):
        file.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)
