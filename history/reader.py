"""Reading a snapshot, once or as it grows: whatever is whole, and a clear word about the rest."""

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
    """Read a snapshot, given the file or the folder that holds it. A run that is still writing is not disturbed."""
    place = locate(path)
    content = Content()
    try:
        with place.open("rb") as stream:
            read(stream, place, content)
    except OSError as error:
        raise _unreadable(place, error) from error
    if content.header is None:
        raise HistoryError(
            f"{place} holds no trial yet: {content.damage or 'its run ended before the first'}. Tune again"
        )
    if content.damage:
        logger.log(logging.INFO if content.torn else logging.WARNING, "%s: %s", place, content.damage)
    return content.snapshot(place)


def locate(path: str | os.PathLike[str]) -> Path:
    """The snapshot file meant by a path to it or to its folder."""
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
    """Follows a snapshot that a run may still be writing, and reads each byte of it once.

    The file, or the folder that will hold it, need not be there yet. A last frame that is not complete is one that is
    still being written. If the file was replaced, or cut, it is read from its beginning.

    Attributes:
        path: the file or its folder.
        changed: whether the last `poll` gave something else than the one before it.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.changed = False
        self._content = Content()
        self._seen: _Seen | None = None
        self._snapshot: Snapshot | None = None

    def poll(self) -> Snapshot | None:
        """All that is in the file now; None as long as there is no header."""
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
            self._content, self._seen, self._snapshot = Content(), None, None
        except OSError as error:
            raise _unreadable(place, error) from error
        self.changed = self._snapshot is not before
        return self._snapshot

    def _follow(self, stream: BinaryIO, place: Path) -> None:
        seen = _Seen.of(stream)
        if seen == self._seen:
            return
        if not self._goes_on(stream, seen):
            self._content, self._snapshot = Content(), None
        content = self._content
        before = content.position, self._snapshot.damage if self._snapshot else None
        read(stream, place, content)
        if content.before_step is not None:  # it is cut off when the step ends, and all would be read anew
            content.position, content.before_step = content.before_step, None
        if content.torn:
            content.damage = None
        if content.header is not None and (self._snapshot is None or before != (content.position, content.damage)):
            self._snapshot = content.snapshot(place)
        self._seen = seen

    def _goes_on(self, stream: BinaryIO, seen: _Seen) -> bool:
        """Whether it is the file that was read before, with nothing taken away."""
        if self._seen is not None and (seen.device, seen.inode) != (self._seen.device, self._seen.inode):
            return False
        if self._content.position.gaps:  # they may have been mended
            return False
        return FrameReader(stream, self._content.position).continues()


class _Seen(NamedTuple):
    """By which a file that has not changed is known."""

    device: int
    inode: int
    size: int
    modified: int

    @classmethod
    def of(cls, stream: BinaryIO) -> _Seen:
        status = os.fstat(stream.fileno())
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def _not_a_file(place: Path) -> HistoryError:
    return HistoryError(f"{place} is not a file; give the {FILE_NAME} of an earlier run, or its workspace")


def _unreadable(place: Path, error: OSError) -> HistoryError:
    return HistoryError(f"{place} cannot be read: {error.strerror}. Check its permissions and its disk")
