"""Append to a file that must never end in a partial record."""

from __future__ import annotations

import contextlib
import errno
import io
import itertools
import logging
import os
import shutil
from pathlib import Path

from quaver.errors import HistoryError
from quaver.files.paths import check_regular
from quaver.history.frames import FrameReader


def open_file(path: Path, flags: int) -> io.FileIO:
    """Open a file for reading and writing, unbuffered."""
    check_regular(path, "the history", HistoryError)
    try:
        return io.FileIO(os.open(path, flags | getattr(os, "O_BINARY", 0), 0o644), "r+")
    except OSError as error:
        raise HistoryError(f"{path} cannot be opened for writing: {error.strerror}. Check its permissions") from error


def sync_folder(folder: Path) -> None:
    """Make a new name in a folder as durable as the file's content, where the system can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def keep_copy(file: io.FileIO, path: Path) -> Path:
    """Copy a damaged file to a new `<name>.damaged` before it is changed."""
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
        f"{path} is damaged and cannot be copied to {target} before its repair: {error.strerror}. Nothing was "
        "changed. Free some space, or copy the workspace to another disk and resume there"
    )


logger = logging.getLogger(__name__)

# The errors of a disk or a quota that is full.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# Judgement: the last 64 bytes hold part of a digest, so an overwritten end shows.
_TAIL = 64


class Appender:
    """Append to an open file. A synced write is on disk when `write` returns.

    Attributes:
        end: the offset of the next write; bytes beyond it are cut off.
    """

    def __init__(self, file: io.FileIO, path: Path, end: int, gaps: int = 0) -> None:
        self._file, self._path, self.end = file, path, end
        self._gaps = gaps
        self._remember()

    def write(self, data: bytes, what: str, sync: bool = True) -> None:
        """Append data, and leave no trace of it if that fails.

        Args:
            data: the bytes to append.
            what: the name of the record in an error message.
            sync: False if the record may be lost when the whole machine crashes.
        """
        if self._file.closed:
            raise HistoryError(f"{what} cannot be recorded: {self._path} is closed, or was opened before a fork")
        descriptor = self._file.fileno()
        try:
            if os.fstat(descriptor).st_size != self.end:
                os.ftruncate(descriptor, self.end)  # an earlier write may have failed and left bytes behind
            offset, remaining = self.end, memoryview(data)
            while remaining:
                written = os.pwrite(descriptor, remaining, offset)
                offset, remaining = offset + written, remaining[written:]
            if sync:
                os.fsync(descriptor)
        except BaseException as error:
            self._take_back()
            if isinstance(error, OSError):
                raise HistoryError(
                    f"{what} could not be written to {self._path}: {error.strerror}. Every earlier record is safe. "
                    f"{'Free some space on' if error.errno in _FULL else 'Check'} that disk, then continue with "
                    f"fit(..., resume={str(self._path)!r})"
                ) from error
            raise
        self.end += len(data)
        self._remember()

    def cut(self, end: int) -> None:
        """Cut the file back to `end`. Cutting needs no space, so it works on a full disk."""
        try:
            os.ftruncate(self._file.fileno(), end)
        except OSError as error:
            raise HistoryError(f"{self._path} could not be cut: {error.strerror}") from error
        self.end = end
        self._remember()

    def read(self, start: int, size: int) -> bytes:
        """Return bytes of the file."""
        return os.pread(self._file.fileno(), size, start)

    def describe_change(self) -> str | None:
        """Describe how another process has changed the file since the last write; None if it has not."""
        try:
            named_status = os.stat(self._path)
        except FileNotFoundError:
            return "was deleted or renamed"
        except OSError as error:
            return f"cannot be found any more ({error.strerror})"
        open_status = os.fstat(self._file.fileno())
        if (named_status.st_dev, named_status.st_ino) != (open_status.st_dev, open_status.st_ino):
            return "was replaced by another file"
        if self._last_state is None:
            return None
        size, modified, tail = self._last_state
        if open_status.st_size != size:
            return f"was {'cut' if open_status.st_size < size else 'written to'} by somebody else"
        if open_status.st_mtime_ns != modified and not (self._tail() == tail and self._is_whole()):
            return "was overwritten by somebody else"
        return None

    def _is_whole(self) -> bool:
        with open(self._file.fileno(), "rb", closefd=False) as stream:
            frames = FrameReader(stream)
            for _ in frames:
                pass
        return frames.position.end == self.end and len(frames.position.gaps) == self._gaps

    def _remember(self) -> None:
        """Store the state of the file; nothing is compared if the state cannot be read."""
        self._last_state: tuple[int, int, bytes] | None = None
        with contextlib.suppress(OSError):
            open_status = os.fstat(self._file.fileno())
            self._last_state = open_status.st_size, open_status.st_mtime_ns, self._tail()

    def _tail(self) -> bytes:
        return self.read(max(0, self.end - _TAIL), _TAIL)

    def _take_back(self) -> None:
        try:
            os.ftruncate(self._file.fileno(), self.end)
            os.fsync(self._file.fileno())
        except OSError as error:
            logger.warning("%s may end in a torn frame (%s); readers ignore that frame", self._path, error.strerror)
        self._remember()
