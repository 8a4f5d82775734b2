"""A folder that all workers of a run on one machine share, where they do not see that of the run.

Each of them holds it while it lives. The last one removes it; what killed ones left goes when the next one comes.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import io
import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

PREFIX = "quaver-site-"
_HELD = "held"


@contextlib.contextmanager
def machine_folder(site: str) -> Iterator[Path]:
    """The folder for a site on this machine."""
    place = Path(tempfile.gettempdir())
    _remove_unused(place)
    folder = place / f"{PREFIX}{os.getuid()}-{hashlib.sha256(site.encode()).hexdigest()[:16]}"
    while True:
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.stat().st_uid != os.getuid():
            raise PermissionError(f"{str(folder)!r} belongs to another user")
        with contextlib.suppress(FileNotFoundError):
            file = os.open(folder / _HELD, os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(file, fcntl.LOCK_SH)
            if (folder / _HELD).exists() and os.path.samestat(os.fstat(file), os.stat(folder / _HELD)):
                break
            os.close(file)  # it was removed in between
    try:
        yield folder
    finally:
        os.close(file)
        _remove_unused(place)


def unpack(parcel: bytes, folder: Path) -> None:
    """Put the content of a parcel there, once; a worker that comes later finds it whole."""
    if (folder / "whole").exists():
        return
    with open(folder / "unpacking", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "whole").exists():
            with tarfile.open(fileobj=io.BytesIO(parcel)) as archive:
                archive.extractall(folder, filter="data")
            (folder / "whole").touch()


def _remove_unused(place: Path) -> None:
    for folder in place.glob(f"{PREFIX}{os.getuid()}-*"):
        with contextlib.suppress(OSError):
            file = os.open(folder / _HELD, os.O_RDWR)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(file)
