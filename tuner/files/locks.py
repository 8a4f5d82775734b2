"""Advisory locks on open files, through which the processes of one machine exclude each other.

The system releases a lock when the last handle of the file is closed, so a killed process leaves no lock behind. This
is why quaver locks with `flock` itself: a lock file that only names its owner outlives a kill. Linux and macOS have
`flock`; Windows does not, and quaver runs there only inside WSL.

A file system without locks (some network disks) raises OSError. Each caller decides what that means for it.
"""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from typing import Protocol


class OpenFile(Protocol):
    """Anything that has a file descriptor."""

    def fileno(self) -> int: ...


def acquire(file: int | OpenFile, *, shared: bool = False) -> None:
    """Lock an open file, and wait while another process holds the lock.

    Args:
        file: an open file or its descriptor; closing it releases the lock.
        shared: True to let other processes hold shared locks at the same time.

    Raises:
        OSError: the file system knows no locks.
    """
    fcntl.flock(file, _mode(shared))


def try_acquire(file: int | OpenFile, *, shared: bool = False) -> bool:
    """Lock an open file without waiting; return False if another process holds the lock.

    Raises:
        OSError: the file system knows no locks.
    """
    try:
        fcntl.flock(file, _mode(shared) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def locked(file: int | OpenFile) -> Iterator[None]:
    """Hold an exclusive lock on a file that stays open afterwards."""
    acquire(file)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)


def _mode(shared: bool) -> int:
    return fcntl.LOCK_SH if shared else fcntl.LOCK_EX
