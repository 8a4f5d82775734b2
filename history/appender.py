"""Appending to a file that must never end in half of something."""

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


logger = logging.getLogger(__name__)

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_TAIL = 64


class Appender:
    """Writes to the end of an open file. What was written and synced is on the disk when `write` returns.

    Attributes:
        end: where the next write begins; what follows it is cut off.
    """

    def __init__(self, file: io.FileIO, path: Path, end: int, gaps: int = 0) -> None:
        self._file, self._path, self.end = file, path, end
        self._gaps = gaps
        self._remember()

    def write(self, data: bytes, what: str, sync: bool = True) -> None:
        """Append, and sync unless a crash of the whole machine may take it. Whatever goes wrong leaves no trace."""
        if self._file.closed:
            raise HistoryError(f"{what} cannot be recorded: {self._path} is closed (or was opened before a fork)")
        descriptor = self._file.fileno()
        try:
            if os.fstat(descriptor).st_size != self.end:
                os.ftruncate(descriptor, self.end)  # in case an earlier write failed and could not be taken back
            at, left = self.end, memoryview(data)
            while left:
                written = os.pwrite(descriptor, left, at)
                at, left = at + written, left[written:]
            if sync:
                os.fsync(descriptor)
        except BaseException as error:
            self._take_back()
            if isinstance(error, OSError):
                raise HistoryError(
                    f"{what} could not be written to {self._path}: {error.strerror}. All before it is safe. "
                    f"{'Free some space on' if error.errno in _FULL else 'Look after'} that disk, then continue with "
                    f"fit(..., resume={str(self._path)!r})"
                ) from error
            raise
        self.end += len(data)
        self._remember()

    def cut(self, end: int) -> None:
        """Take back what was written after `end`. That needs no space, so it works on a full disk."""
        try:
            os.ftruncate(self._file.fileno(), end)
        except OSError as error:
            raise HistoryError(f"{self._path} could not be cut: {error.strerror}") from error
        self.end = end
        self._remember()

    def read(self, start: int, size: int) -> bytes:
        """Bytes that are in the file."""
        return os.pread(self._file.fileno(), size, start)

    def changed(self) -> str | None:
        """What somebody else has done to the file since the last write, in half a sentence; None if nothing."""
        try:
            named = os.stat(self._path)
        except FileNotFoundError:
            return "was deleted or renamed"
        except OSError as error:
            return f"cannot be found any more ({error.strerror})"
        held = os.fstat(self._file.fileno())
        if (named.st_dev, named.st_ino) != (held.st_dev, held.st_ino):
            return "was replaced by another file"
        if self._seen is None:
            return None
        size, modified, tail = self._seen
        if held.st_size != size:
            return f"was {'cut' if held.st_size < size else 'written to'} by somebody else"
        if held.st_mtime_ns != modified and not (self._tail() == tail and self._is_whole()):
            return "was overwritten by somebody else"
        return None

    def _is_whole(self) -> bool:
        with open(self._file.fileno(), "rb", closefd=False) as stream:
            frames = FrameReader(stream)
            for _ in frames:
                pass
        return frames.position.end == self.end and len(frames.position.gaps) == self._gaps

    def _remember(self) -> None:
        """How the file looks now; nothing is compared if that cannot be said."""
        self._seen: tuple[int, int, bytes] | None = None
        with contextlib.suppress(OSError):
            held = os.fstat(self._file.fileno())
            self._seen = held.st_size, held.st_mtime_ns, self._tail()

    def _tail(self) -> bytes:
        return self.read(max(0, self.end - _TAIL), _TAIL)

    def _take_back(self) -> None:
        try:
            os.ftruncate(self._file.fileno(), self.end)
            os.fsync(self._file.fileno())
        except OSError as error:
            logger.warning("%s may end in a torn frame (%s); it will be ignored", self._path, error.strerror)
        self._remember()
