"""Folders for large temporary files. What a killed process left goes when the next makes one, or starts a run."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import secrets
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

# The machine, the process, and something that nobody else has.
_MARK = r"(([0-9a-f]{8})-([0-9]{1,10})-[0-9a-z_]{8})"
_in_use: set[str] = set()


def owner() -> str:
    """How a mark of this process begins."""
    return f"{machine()}-{os.getpid()}-"


@contextlib.contextmanager
def marked() -> Iterator[str]:
    """A mark that nobody else has, for a while."""
    mark = owner() + secrets.token_hex(4)
    _in_use.add(mark)
    try:
        yield mark
    finally:
        _in_use.discard(mark)


def is_orphaned(name: str, before: str) -> bool:
    """Whether a name is `before` and a mark whose process is dead. Of other machines nobody can tell.

    A mark of this process that is not in use is a left-over, too: of a try that failed, or of a dead process that had
    the same number.
    """
    found = re.fullmatch(re.escape(before) + _MARK, name)
    if found is None or found[2] != machine():
        return False
    pid = int(found[3])
    return found[1] not in _in_use if pid == os.getpid() else not _is_alive(pid)


@functools.cache
def machine() -> str:
    """This machine, as a mark says it."""
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # it is there, and somebody else's
        return True
    return True


PREFIX = "quaver-"


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """A new folder in the system's place for temporary files, for a while. A forked child leaves it to its parent."""
    remove_orphans()
    with marked() as mark:
        folder, pid = Path(tempfile.gettempdir(), f"{PREFIX}{mark}"), os.getpid()
        folder.mkdir(0o700)
        try:
            yield folder
        finally:
            if os.getpid() == pid:
                shutil.rmtree(folder, ignore_errors=True)


def remove_orphans() -> None:
    """Remove folders whose process is dead, if they are this user's."""
    place = Path(tempfile.gettempdir())
    with contextlib.suppress(OSError):
        for path in place.glob(f"{PREFIX}*"):
            if is_orphaned(path.name, PREFIX) and _is_own_folder(path):
                shutil.rmtree(path, ignore_errors=True)


def _is_own_folder(path: Path) -> bool:
    """Not a link, and not another user's: anybody can make any name in a place that all share."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return not path.is_symlink() and path.is_dir() and found.st_uid == getattr(os, "getuid", lambda: found.st_uid)()
