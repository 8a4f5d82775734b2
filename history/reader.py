"""Read a snapshot, once or while it grows."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import BinaryIO, NamedTuple

from quaver.errors import HistoryError
from quaver.files.paths import expanded
from quaver.history.contents import Content, read
from quaver.history.frames import FrameReader
from quaver.history.snapshot import FILE_NAME, Snapshot

logger = logging.getLogger(__name__)


def read_snapshot(path: str | os.PathLike[str]) -> Snapshot:
    """Read a snapshot from the file or the folder that holds it. A run that is still writing is not disturbed."""
    place = locate(path)
    content = Content()
    try:
        with place.open("rb") as stream:
            read(stream, place, content)
    except OSError as error:
        raise _unreadable(place, error) from error
    if content.header is None:
        raise HistoryError(
            f"{place} holds no trial yet: {content.damage or 'its run ended before the first trial'}. Tune again"
        )
    if content.damage:
        logger.log(logging.INFO if content.torn else logging.WARNING, "%s: %s", place, content.damage)
    return content.snapshot(place)


def locate(path: str | os.PathLike[str]) -> Path:
    """Return the snapshot file that a path to it, or to its folder, means."""
    place = Path(expanded(path))
    if place.is_dir():
        if not (place / FILE_NAME).exists():
            raise HistoryError(f"the folder {place} holds no {FILE_NAME}; give the workspace of an earlier run")
        place /= FILE_NAME
    if not place.exists():
        raise HistoryError(f"there is no snapshot at {place}; give the {FILE_NAME} of an earlier run, or its workspace")
    if not place.is_file():
        raise _not_a_file(place)
    return place


class SnapshotReader:
    """Follow a snapshot that a run may still be writing, and read each byte of it once.

    The file, or the folder that will hold it, may not exist yet. An incomplete last frame is still being written. A
    file that was replaced or cut is read from its beginning.

    Attributes:
        path: the file or its folder.
        changed: True if the last `poll` returned something new.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.changed = False
        self._content = Content()
        self._last_status: _FileStatus | None = None
        self._snapshot: Snapshot | None = None

    def poll(self) -> Snapshot | None:
        """Return the current records; None as long as there is no header."""
        before = self._snapshot
        self.changed = False
        place = self.path
        try:
            if place.is_dir():
                place /= FILE_NAME
            if place.exists() and not place.is_file():
                raise _not_a_file(place)
            with place.open("rb") as stream:
                self._follow(stream, place)
        except FileNotFoundError:
            self._content, self._last_status, self._snapshot = Content(), None, None
        except OSError as error:
            raise _unreadable(place, error) from error
        self.changed = self._snapshot is not before
        return self._snapshot

    def _follow(self, stream: BinaryIO, place: Path) -> None:
        status = _FileStatus.of(stream)
        if status == self._last_status:
            return
        if not self._continues(stream, status):
            self._content, self._snapshot = Content(), None
        content = self._content
        before = content.position, self._snapshot.damage if self._snapshot else None
        read(stream, place, content)
        if (
            content.before_step is not None
        ):  # this record is cut off when the step ends, and the whole file would be read again
            content.position, content.before_step = content.before_step, None
        if content.torn:
            content.damage = None
        if content.header is not None and (self._snapshot is None or before != (content.position, content.damage)):
            self._snapshot = content.snapshot(place)
        self._last_status = status

    def _continues(self, stream: BinaryIO, status: _FileStatus) -> bool:
        """Return True if this is the file that was read before, with nothing removed."""
        if self._last_status is not None and (status.device, status.inode) != (
            self._last_status.device,
            self._last_status.inode,
        ):
            return False
        if self._content.position.gaps:  # the damage may have been repaired
            return False
        return FrameReader(stream, self._content.position, self._content.layout).continues()


class _FileStatus(NamedTuple):
    """Identity, size and time of a file, which differ when the file changes."""

    device: int
    inode: int
    size: int
    modified: int

    @classmethod
    def of(cls, stream: BinaryIO) -> _FileStatus:
        status = os.fstat(stream.fileno())
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def _not_a_file(place: Path) -> HistoryError:
    return HistoryError(f"{place} is not a file; give the {FILE_NAME} of an earlier run, or its workspace")


def _unreadable(place: Path, error: OSError) -> HistoryError:
    return HistoryError(f"{place} cannot be read: {error.strerror}. Check its permissions and its disk")
