"""Write files atomically: a reader sees the old file or the whole new one."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from quaver.files.temporary import is_orphaned, marked

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)


def write_safely(path: Path, chunks: Iterable[bytes | memoryview]) -> None:
    """Write a file under a temporary name, then rename it. After a power cut, too, it is the old or the whole new one.

    The mode of the file follows the user's umask. The temporary name tells which process writes it, so that leftovers
    of killed processes are removed.
    """
    _check_replaceable(path)
    remove_orphans(path)
    with marked() as mark:
        _write_as(path.with_name(f".{path.name}.{mark}"), path, chunks)
    _sync_folder(path.parent)


def _check_replaceable(path: Path) -> None:
    """Refuse to replace a pipe or a device, which other programs use."""
    with contextlib.suppress(FileNotFoundError):
        mode = os.stat(path).st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # the system refuses folders
            raise OSError(errno.EINVAL, "it is a pipe or a device, not a regular file")


def _write_as(temporary: Path, path: Path, chunks: Iterable[bytes | memoryview]) -> None:
    try:
        with os.fdopen(os.open(temporary, _NEW, 0o666), "wb") as file:
            for chunk in chunks:
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def remove_orphans(path: Path) -> None:
    """Remove temporary files of this path whose process is dead."""
    with contextlib.suppress(OSError):
        for name in os.listdir(path.parent):
            if is_orphaned(name, f".{path.name}."):
                path.with_name(name).unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Write the new name to the disk as well, where the system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
