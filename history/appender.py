"""Appending to a file that must never end in half of something."""

from __future__ import annotations

import io
import logging
import os
from pathlib import Path

from quaver.errors import HistoryError

logger = logging.getLogger(__name__)


class Appender:
    """Writes to the end of an open file. What was written is on the disk when `write` returns.

    Attributes:
        end: where the next write begins; what follows it is cut off.
    """

    def __init__(self, file: io.FileIO, path: Path, end: int) -> None:
        self._file, self._path, self.end = file, path, end

    def write(self, data: bytes, what: str) -> None:
        """Append and sync. Whatever goes wrong, the file ends where it ended before."""
        if self._file.closed:
            raise HistoryError(f"{what} cannot be recorded: {self._path} is closed (or was opened before a fork)")
        try:
            self._file.truncate(self.end)  # in case an earlier write failed and could not be taken back
            self._file.seek(self.end)
            left = memoryview(data)
            while left:
                left = left[self._file.write(left) :]
            os.fsync(self._file.fileno())
        except BaseException as error:
            self._take_back()
            if isinstance(error, OSError):
                raise HistoryError(
                    f"{what} could not be written to {self._path}: {error.strerror}. All before it is safe. Free some "
                    f"space on that disk, then continue with fit(..., resume={str(self._path)!r})"
                ) from error
            raise
        self.end += len(data)

    def _take_back(self) -> None:
        try:
            self._file.truncate(self.end)
            os.fsync(self._file.fileno())
        except OSError as error:
            logger.warning("%s may end in a torn frame (%s); it will be ignored", self._path, error.strerror)
