"""Folders for large temporary files, and the removal of those that killed processes left behind."""

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

# A mark: the machine, the process and a random part.
_MARK = r"(([0-9a-f]{8})-([0-9]{1,10})-[0-9a-z_]{8})"
_in_use: set[str] = set()


def owner() -> str:
    """Return the beginning of the marks of this process."""
    return f"{machine()}-{os.getpid()}-"


@contextlib.contextmanager
def marked() -> Iterator[str]:
    """Yield a unique mark; afterwards it counts as orphaned."""
    mark = owner() + secrets.token_hex(4)
    _in_use.add(mark)
    try:
        yield mark
    finally:
        _in_use.discard(mark)


def is_orphaned(name: str, prefix: str) -> bool:
    """Return whether a name is a prefix and a mark whose process is dead. Names of other machines never count.

    A mark of this process that is not in use counts as well: it is of a failed attempt, or of a dead process with the
    same number.
    """
    match = re.fullmatch(re.escape(prefix) + _MARK, name)
    if match is None or match[2] != machine():
        return False
    pid = int(match[3])
    return match[1] not in _in_use if pid == os.getpid() else not _is_alive(pid)


@functools.cache
def machine() -> str:
    """Return this machine as marks name it."""
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # it exists and belongs to another user
        return True
    return True


PREFIX = "quaver-"


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """Yield a new temporary folder, and remove it afterwards. A forked child leaves that to its parent."""
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
    """Remove this user's temporary folders whose process is dead."""
    place = Path(tempfile.gettempdir())
    with contextlib.suppress(OSError):
        for path in place.glob(f"{PREFIX}*"):
            if is_orphaned(path.name, PREFIX) and _is_own_folder(path):
                shutil.rmtree(path, ignore_errors=True)


def _is_own_folder(path: Path) -> bool:
    """Return whether a path is a folder of this user and no link, because all users share the temporary folder."""
    try:
        status = path.lstat()
    except OSError:
        return False
    return not path.is_symlink() and path.is_dir() and status.st_uid == os.getuid()
