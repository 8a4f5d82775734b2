"""Writing a snapshot: the one `History` that a run appends to."""

from __future__ import annotations

import io
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from quaver.errors import HistoryError
from quaver.history.durable import keep_copy, open_file, sync_folder
from quaver.history.frames import MAGIC, Malformed, pack
from quaver.history.lock import lock
from quaver.history.records import Header, from_header, from_note, from_trial, to_header, to_note, to_trial
from quaver.history.snapshot import FILE_NAME, Content, locate, read
from quaver.ops import QuantConfig
from quaver.trial import Trial

logger = logging.getLogger(__name__)


class History:
    """The one writer of a snapshot, and all it has recorded so far.

    What a method has appended is on the disk when it returns. If it cannot be, the file is put back to where it was and
    `HistoryError` is raised, so the file is always readable. To be used by one thread.
    """

    def __init__(self, path: Path, file: io.FileIO, content: Content) -> None:
        """Use `create` or `resume`."""
        self.path = path
        self._file = file
        self._content = content
        self._known = {trial.config: trial for trial in content.trials}

    @classmethod
    def create(cls, path: str | os.PathLike[str]) -> History:
        """Start a snapshot at `path`, a file or an existing folder. One with content is never overwritten."""
        place = Path(path)
        if place.is_dir():
            place /= FILE_NAME
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise HistoryError(
                f"the folder of {place} cannot be made: {error.strerror}. Use another workspace"
            ) from error
        file = open_file(place, os.O_RDWR | os.O_CREAT)
        try:
            lock(file, place)
            if not MAGIC.startswith(file.read(len(MAGIC) + 1)):
                raise HistoryError(
                    f"{place} exists already, and a history is never overwritten. Continue it with "
                    f"fit(..., resume={str(place)!r}), or use another workspace"
                )
            history = cls(place, file, Content())
            history._restart()
            sync_folder(place.parent)
        except BaseException:
            file.close()
            raise
        return history

    @classmethod
    def resume(cls, path: str | os.PathLike[str]) -> History:
        """Continue a snapshot, given the file or its folder; `header` is None if its run ended before `begin`."""
        place = locate(path)
        file = open_file(place, os.O_RDWR)
        try:
            lock(file, place)
            try:
                with open(file.fileno(), "rb", closefd=False) as stream:
                    content = read(stream, place)
            except OSError as error:
                raise HistoryError(f"{place} cannot be read: {error.strerror}. Check its disk") from error
            history = cls(place, file, content)
            history._repair()
        except BaseException:
            file.close()
            raise
        return history

    @property
    def header(self) -> Header | None:
        """What the trials belong to; None until `begin`."""
        return self._content.header

    @property
    def baseline(self) -> Trial | None:
        """The fp32 model's trial, the last one recorded."""
        return self._content.baseline

    @property
    def trials(self) -> list[Trial]:
        """All trials but the baseline, in the order they were recorded. Not to be changed."""
        return self._content.trials

    @property
    def notes(self) -> dict[str, Any]:
        """Name -> plain data, the last of each name. Not to be changed."""
        return self._content.notes

    @property
    def damage(self) -> str | None:
        """What `resume` found unreadable and removed; None if the file was whole."""
        return self._content.damage

    @property
    def next_number(self) -> int:
        """One more than the highest trial number so far."""
        return max(self._content.numbers, default=0) + 1

    def begin(self, header: Header) -> None:
        """Record the header, once and before all else."""
        if self.header is not None:
            raise HistoryError(f"{self.path} has a header already; resume it, or use another workspace")
        with self._recording("the header"):
            record = from_header(header)
            checked = to_header(record)
            self._write(pack(record), "the header")
        self._content.add_header(checked)

    def append(self, trial: Trial) -> None:
        """Record a trial; number 0 is the baseline, which may be recorded again."""
        what = f"trial {trial.number} ({'failed' if trial.failed else f'score {trial.score}'})"
        with self._recording(what):
            self._need_header()
            record = from_trial(trial, self._content.names)
            to_trial(record, self._content.names)
            self._content.check_number(trial.number)
            self._write(pack(record), what)
        self._content.add_trial(trial)
        if trial.number > 0:
            self._known[trial.config] = trial

    def note(self, name: str, data: Any) -> None:
        """Record named plain data, such as what a probe found; a later note of the same name replaces it."""
        what = f"the note {name!r}"
        with self._recording(what):
            self._need_header()
            record = from_note(name, data)
            _, copy = to_note(record)
            self._write(pack(record), what)
        self.notes[name] = copy

    def find(self, config: QuantConfig) -> Trial | None:
        """The newest trial of this configuration, if it was tried."""
        return self._known.get(config)

    def forget_trailing_failures(self) -> None:
        """Let `find` no longer answer with the failed trials at the very end, so that they are tried again.

        They stay in the file. A run that ended in failures is resumed when their cause, often eval_func, is repaired.
        """
        for trial in reversed(self.trials):
            if not trial.failed:
                break
            self._known.pop(trial.config, None)

    def close(self) -> None:
        """Release the file and the lock. More than once does no harm."""
        self._file.close()

    def __enter__(self) -> History:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"History({str(self.path)!r}, {len(self.trials)} trials)"

    def _need_header(self) -> None:
        if self.header is None:
            raise Malformed("the header must be recorded first, with begin()")

    @contextmanager
    def _recording(self, what: str) -> Iterator[None]:
        try:
            yield
        except Malformed as error:
            raise HistoryError(f"{what} cannot be recorded in {self.path}: {error}") from error

    def _write(self, data: bytes, what: str) -> None:
        """Append and sync. Whatever goes wrong, the file ends where it ended before."""
        if self._file.closed:
            raise HistoryError(f"{what} cannot be recorded: {self.path} is closed (or was opened before a fork)")
        end = self._content.end
        try:
            self._file.truncate(end)  # in case an earlier write failed and could not be taken back
            self._file.seek(end)
            left = memoryview(data)
            while left:
                left = left[self._file.write(left) :]
            os.fsync(self._file.fileno())
        except BaseException as error:
            self._take_back(end)
            if isinstance(error, OSError):
                raise HistoryError(
                    f"{what} could not be written to {self.path}: {error.strerror}. All before it is safe. Free some "
                    f"space on that disk, then continue with fit(..., resume={str(self.path)!r})"
                ) from error
            raise
        self._content.end = end + len(data)

    def _take_back(self, end: int) -> None:
        try:
            self._file.truncate(end)
            os.fsync(self._file.fileno())
        except OSError as error:
            logger.warning("%s may end in a torn frame (%s); it will be ignored", self.path, error.strerror)

    def _restart(self) -> None:
        self._content.end = 0
        self._write(MAGIC, "the first line")

    def _repair(self) -> None:
        """Cut off what cannot be read, after copying the file if that is more than one interrupted write."""
        content = self._content
        if content.damage is None:
            return
        if not content.torn:
            if content.header is None:
                raise HistoryError(
                    f"the header of {self.path} is damaged, and its trials mean nothing without it. Nothing was "
                    "changed. Restore the file from a copy, or start again in another workspace"
                )
            logger.warning(
                "%s: %s; the file was kept as %s", self.path, content.damage, keep_copy(self._file, self.path)
            )
        else:
            logger.warning("%s: %s; they are removed", self.path, content.damage)
        if content.end == 0:
            self._restart()
        else:
            self._write(b"", "the repair")
