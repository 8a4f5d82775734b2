"""Folders for large temporary files. What a killed process left goes when the next makes one, or starts a run."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from quaver.adapters.owner import is_orphaned, marked

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
