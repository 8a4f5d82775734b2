"""What a writer asks of the disk besides appending."""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import shutil
from pathlib import Path

from quaver.errors import HistoryError
from quaver.paths import check_regular


def open_file(path: Path, flags: int) -> io.FileIO:
    """Open for reading and writing, unbuffered."""
    check_regular(path, "the history", HistoryError)
    try:
        return io.FileIO(os.open(path, flags | getattr(os, "O_BINARY", 0), 0o644), "r+")
    except OSError as error:
        raise HistoryError(f"{path} cannot be opened for writing: {error.strerror}. Check its permissions") from error


def sync_folder(folder: Path) -> None:
    """Make a new name in the folder as durable as the file's content, where the system can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def keep_copy(file: io.FileIO, path: Path) -> Path:
    """Copy a damaged file as it is to a new `<name>.damaged`, before anything in it is changed."""
    for number in itertools.count():
        target = path.with_name(f"{path.name}.damaged{f'.{number}' if number else ''}")
        try:
            copy = target.open("xb")
        except FileExistsError:
            continue
        except OSError as error:
            raise _no_copy(path, target, error) from error
        try:
            with copy:
                file.seek(0)
                shutil.copyfileobj(file, copy)
                copy.flush()
                os.fsync(copy.fileno())
        except OSError as error:
            target.unlink(missing_ok=True)
            raise _no_copy(path, target, error) from error
        return target
    raise AssertionError("unreachable")


def _no_copy(path: Path, target: Path, error: OSError) -> HistoryError:
    return HistoryError(
        f"{path} is damaged, and cannot be copied to {target} before it is repaired: {error.strerror}. Nothing was "
        "changed. Free some space, or copy the workspace to another disk and resume there"
    )
