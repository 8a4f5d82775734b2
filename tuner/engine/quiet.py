"""A quiet moment on this machine: whoever measures time does so while no other run of quaver measures.

Within a run nothing else is under way then; between runs the temporary folder, which all share, is the lock.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

# Longer than this, in seconds, nobody is waited for: figures are fractions of what the float model took beside them.
LONGEST = 60.0
LOOK = 0.05


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Wait until nobody else measures, and let nobody begin."""
    handle = _open()
    try:
        end = time.monotonic() + LONGEST
        while handle is not None and not _locked(handle) and time.monotonic() < end:
            time.sleep(LOOK)
        yield
    finally:
        if handle is not None:
            os.close(handle)


def _open() -> int | None:
    with contextlib.suppress(OSError):
        return None if fcntl is None else os.open(tempfile.gettempdir(), os.O_RDONLY)
    return None


def _locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True
