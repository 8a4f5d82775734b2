"""Writing a snapshot: the one `History` that a run appends to."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from quaver.errors import HistoryError
from quaver.history.appender import Appender, keep_copy, open_file, sync_folder
from quaver.history.contents import Content, read
from quaver.history.frames import MAGIC, PREFIX, is_unwritten, pack
from quaver.history.lock import Lock, lock
from quaver.history.pickle_check import MAX_PAYLOAD, Malformed
from quaver.history.reader import locate
from quaver.history.records.header import SCHEMA, Header, Run, from_header, from_run, to_header, to_run
from quaver.history.records.notes import from_items, from_note, to_items, to_note
from quaver.history.records.trials import from_measured, from_trial, to_measured, to_trial
from quaver.history.records.unfinished_trials import RETRIES, STEP, digest_step, from_begun, from_dropped, to_begun
from quaver.history.repair import new_file, write_all
from quaver.history.snapshot import FILE_NAME
from quaver.ops import QuantConfig
from quaver.trial import Trial
from quaver.types import PlainDict, PlainMapping

logger = logging.getLogger(__name__)


class History:
    """The only writer of a snapshot file, with everything recorded so far.

    A record is on disk when the method that wrote it returns. If writing fails, the file is cut back to its previous
    end and `HistoryError` is raised, so the file always stays readable.

    `begin` comes first and once, then `start_run` for every `fit`, then trials and notes. The caller numbers the
    trials; each number is used once. Only number 0, the baseline, may be recorded again, and the last one counts. Loss
    and verdict are not recorded, because a criterion may change. Data is plain: None, bool, int, float, str, bytes, and
    lists, tuples and dicts of them.

    If another process deletes, replaces, cuts or overwrites the file, everything known is written to a new file with a
    warning, and `path` becomes that file. Use a history from one thread only.

    Attributes:
        path: the snapshot file.
    """

    def __init__(self, path: Path, file: io.FileIO, content: Content, guard: Lock) -> None:
        """Use `create` or `resume`."""
        self.path = path
        self._file = file
        self._content = content
        self._guard = guard
        self._appender = Appender(file, path, content.position.end, len(content.position.gaps))
        self._withdrawable: dict[int, tuple[int, int]] = {}  # number of a begun trial -> where its record lies
        self._known = {trial.config: trial.number for trial in content.trials}

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
        file, guard = open_file(place, os.O_RDWR | os.O_CREAT), Lock()
        try:
            guard = lock(file, place)
            if not is_unwritten(file.read(len(MAGIC) + 1)):
                raise HistoryError(
                    f"{place} exists already, and a history is never overwritten. Continue it with "
                    f"fit(..., resume={str(place)!r}), or use another workspace"
                )
            history = cls(place, file, Content(), guard)
            history._restart()
            sync_folder(place.parent)
        except BaseException as error:
            _let_go(file, guard)
            if isinstance(error, OSError):
                raise HistoryError(f"{place} cannot be opened: {error.strerror}. Check its disk") from error
            raise
        return history

    @classmethod
    def resume(cls, path: str | os.PathLike[str]) -> History:
        """Continue a snapshot, given the file or its folder; `header` is None if its run ended before `begin`."""
        place = locate(path)
        file, guard = open_file(place, os.O_RDWR), Lock()
        try:
            guard = lock(file, place)
            content = Content()
            try:
                with open(file.fileno(), "rb", closefd=False) as stream:
                    read(stream, place, content)
            except OSError as error:
                raise HistoryError(f"{place} cannot be read: {error.strerror}. Check its disk") from error
            history = cls(place, file, content, guard)
            history._repair()
        except BaseException as error:
            _let_go(file, guard)
            if isinstance(error, OSError):
                raise HistoryError(f"{place} cannot be opened: {error.strerror}. Check its disk") from error
            raise
        return history

    @property
    def header(self) -> Header | None:
        """What the trials belong to; None until `begin`."""
        return self._content.header

    @property
    def runs(self) -> tuple[Run, ...]:
        """Every `fit` so far, the first one first."""
        return tuple(self._content.runs)

    @property
    def run(self) -> Run:
        """The latest run; an empty one of number 0 before the first."""
        return self.runs[-1] if self.runs else Run(0, "", {}, {})

    def run_of(self, number: int) -> Run:
        """Return the run that recorded the trial of that number."""
        return self._content.snapshot(self.path).run_of(number)

    @property
    def baseline(self) -> Trial | None:
        """The fp32 model's trial, the last one recorded."""
        return self._content.baseline

    @property
    def trials(self) -> list[Trial]:
        """All trials but the baseline, in the order they were recorded, not judged. Not to be changed."""
        return self._content.trials

    @property
    def notes(self) -> PlainDict:
        """Name -> plain data, the last of each name, with all that was added to it. Not to be changed."""
        return self._content.notes

    @property
    def damage(self) -> str | None:
        """What `resume` found unreadable; None if the file was whole."""
        return self._content.damage

    def begin(self, header: Header) -> None:
        """Record the header, once and before all else."""
        if self.header is not None:
            raise HistoryError(f"{self.path} has a header already; resume it, or use another workspace")
        with self._recording("the header"):
            record = from_header(header)
            opening = to_header(record)
            data = pack(record)
            start = self._write(data, "the header")
        self._content.add_header(opening)
        self._content.headers, self._content.header_frame = 1, (start, data[: PREFIX.size])

    def start_run(self, settings: PlainMapping, versions: Mapping[str, str], started: str | None = None) -> Run:
        """Record that a `fit` begins, new or resumed; the trials that follow are its own. `started` is now if None.

        It is recorded twice, and so is the header, at two places: nothing could be understood without them.
        """
        what = "the run"
        with self._recording(what):
            self._need_header()
            now = started or datetime.now(UTC).isoformat(timespec="seconds")
            record = from_run(Run(len(self._content.runs) + 1, now, dict(settings), dict(versions)))
            run = to_run(record)
            self._write(pack(record), what)
            self._content.add_run(run)
            self._write(self._second_header() + pack(record), "the second header")
            self._content.headers += 1
        return run

    def append(self, trial: Trial) -> None:
        """Record a trial; number 0 is the baseline, which may be recorded again. Its verdict is not recorded."""
        what = f"trial {trial.number} ({'failed' if trial.failed else f'score {trial.score}'})"
        with self._recording(what):
            self._need_header()
            record = from_trial(trial, self._content.places)
            checked = to_trial(record, self._content.places, SCHEMA)
            self._content.check_trial(trial.number)
            self._write(pack(record), what)
        self._content.add_trial(replace(checked, config=trial.config))
        if trial.number > 0:
            self._known[trial.config] = trial.number

    def begin_trial(self, number: int, config: QuantConfig) -> None:
        """Record that a configuration is handed out, so that one that ends the process is known afterwards."""
        self._begin(number, config.fingerprint, f"that trial {number} begins")

    def begin_step(self, name: str) -> None:
        """Record that native work between trials begins, so that a step that ends the process is known afterwards."""
        self._begin(STEP, digest_step(name), f"that a step ({name:.80}) begins")

    def end_step(self) -> None:
        """Take back that a step was begun."""
        self.drop_trial(STEP)

    def step_crashes(self, name: str) -> int:
        """Return how often the process ended during the step of that name."""
        return self.crashed_steps.get(digest_step(name), 0)

    @property
    def crashed_steps(self) -> Mapping[str, int]:
        """Return how often the process ended during each step, by the sha256 of the step's name."""
        return self._content.begun.crashed_steps

    def _begin(self, number: int, fingerprint: str, what: str) -> None:
        with self._recording(what):
            self._need_header()
            record = from_begun(number, fingerprint)
            data = pack(record)
            # A process that ends takes nothing with it that was written; only a power cut could, which is no crash.
            start = self._write(data, what, sync=False)
        self._content.begun.begin(*to_begun(record))
        self._withdrawable[number] = start, start + len(data)

    def drop_trial(self, number: int) -> None:
        """Take back that a trial was begun. On a full disk, too: what stands last in the file is cut off."""
        if not self._content.begun.is_under_way(number) or self._file.closed:
            return
        what = f"that trial {number} is given up"
        start, end = self._withdrawable.pop(number, (0, 0))
        if end == self._appender.end and self._appender.changed() is None:
            self._appender.cut(start)
        else:
            with self._recording(what):
                self._write(pack(from_dropped(number)), what)
        self._content.begun.end(number)

    def crashes(self, config: QuantConfig) -> int:
        """How often the process ended while this configuration was tried."""
        return self._content.begun.crashes(config.fingerprint)

    def measure(self, number: int, figures: Mapping[str, float]) -> Trial:
        """Record figures that were taken of a trial, besides those it has; the trial with all of them."""
        what = f"what was measured of trial {number}"
        with self._recording(what):
            self._need_header()
            record = from_measured(number, figures)
            _, checked = to_measured(record)
            self._content.check_measured(number, checked)
            self._write(pack(record), what)
        self._content.add_measured(number, checked)
        return self._content.known(number)

    def note(self, name: str, data: Any) -> None:
        """Record named plain data, such as what a probe found; a later note of the same name replaces it."""
        what = f"the note {name!r}"
        with self._recording(what):
            self._need_header()
            record = from_note(name, data)
            _, copy = to_note(record)
            self._write(pack(record), what)
        self._content.add_note(name, copy)

    def extend_note(self, name: str, items: PlainMapping) -> None:
        """Add items to a note that is a dict, or begin one. They alone are written; a known key gets the new value."""
        what = f"what is added to the note {name!r}"
        with self._recording(what):
            self._need_header()
            record = from_items(name, items)
            _, copy = to_items(record)
            self._content.check_items(name)
            self._write(pack(record), what)
        self._content.add_items(name, copy)

    def find(self, config: QuantConfig) -> Trial | None:
        """The newest trial of this configuration, if it was tried."""
        number = self._known.get(config)
        return None if number is None else self._content.known(number)

    def forget_trailing_failures(self, is_fatal: Callable[[QuantConfig], bool] = lambda config: False) -> None:
        """Let `find` no longer answer with the failed trials at the very end, so that they are tried again.

        They stay in the file. A run that ended in failures is resumed when their cause, often eval_func, is repaired.
        Configurations that ended the process too often, or that `is_fatal` names, stay failed.
        """
        for trial in reversed(self.trials):
            if not trial.failed:
                break
            if self.crashes(trial.config) <= RETRIES and not is_fatal(trial.config):
                self._known.pop(trial.config, None)

    def close(self) -> None:
        """Release the file and the lock, and look whether the file is still there. More than once does no harm."""
        try:
            if not self._file.closed and self.header is not None and self.path.parent.is_dir():
                self._keep_whole()
        finally:
            _let_go(self._file, self._guard)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"History({str(self.path)!r}, {len(self.trials)} trials)"

    def _write(self, data: bytes, what: str, sync: bool = True) -> int:
        """Append to the file, if it is still what it was, or to a new one; where the data begins."""
        if not self._file.closed:
            self._guard.check()
            self._keep_whole()
        start = self._appender.end
        self._appender.write(data, what, sync)
        return start

    def _second_header(self) -> bytes:
        """The header's frame as it stands in the file; nothing if it is there twice already."""
        start, prefix = self._content.header_frame
        if self._content.headers != 1:
            return b""
        try:
            return self._appender.read(start, PREFIX.size + int(PREFIX.unpack(prefix)[0]))
        except OSError as error:
            raise HistoryError(f"{self.path} cannot be read: {error.strerror}. Check its disk") from error

    def _keep_whole(self) -> None:
        """If somebody else has changed the file, say so and go on in a new one that holds all that is known."""
        reason = self._appender.changed()
        if reason is None:
            return
        wanted = self.path.with_name(f"{self.path.name}.rescued") if os.path.lexists(self.path) else self.path
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            file, place = new_file(wanted)
            guard = lock(file, place)
            end = write_all(file, place, self._content)
        except (HistoryError, OSError) as error:
            raise HistoryError(
                f"{self.path} {reason} while a run wrote it, and what is known of its {len(self.trials)} trial(s) "
                f"could not be written to a new file: {error}"
            ) from error
        said = f"{self.path} {reason} while a run wrote it. All its {len(self.trials)} trial(s) are in {place}"
        logger.warning("%s; the run goes on there", said)
        warnings.warn(said, UserWarning, stacklevel=2)
        _let_go(self._file, self._guard)
        self.path, self._file, self._guard = place, file, guard
        self._appender = Appender(file, place, end)
        self._withdrawable.clear()
        self._content.headers = 2

    def _need_header(self) -> None:
        if self.header is None:
            raise Malformed("the header must be recorded first, with begin()")

    @contextlib.contextmanager
    def _recording(self, what: str) -> Iterator[None]:
        try:
            yield
        except Malformed as error:
            raise HistoryError(f"{what} cannot be recorded in {self.path}: {error}") from error

    def _restart(self) -> None:
        self._appender.end = 0
        self._appender.write(MAGIC, "the first line")

    def _repair(self) -> None:
        """Cut off an end that cannot be read, after copying the file if that is more than one interrupted write."""
        content = self._content
        if content.damage is None:
            return
        if not content.torn and content.header is None:
            raise HistoryError(
                f"the header of {self.path} is damaged, and its trials mean nothing without it. Nothing was "
                "changed. Restore the file from a copy, or start again in another workspace"
            )
        tail = os.fstat(self._file.fileno()).st_size - self._appender.end
        if tail > PREFIX.size + MAX_PAYLOAD:
            raise HistoryError(
                f"{self.path} ends in {tail:,} bytes that no run has written. Nothing was changed. `quaver history "
                f"{self.path} --repair` writes all that is whole to a new file"
            )
        if content.torn:
            logger.warning("%s: %s; they are removed", self.path, content.damage)
        elif tail:
            logger.warning(
                "%s: %s; the file was kept as %s", self.path, content.damage, keep_copy(self._file, self.path)
            )
        else:
            logger.warning("%s: %s; `quaver history --repair` leaves them out", self.path, content.damage)
        if self._appender.end == 0:
            self._restart()
        elif tail:
            self._appender.write(b"", "the repair")


def _let_go(file: io.FileIO, guard: Lock) -> None:
    """Close and unlock. All that matters is on the disk by then, so nothing that goes wrong here does."""
    with contextlib.suppress(OSError):
        file.close()
    guard.release()
