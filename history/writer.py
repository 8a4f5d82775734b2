"""Write a snapshot: the `History` that a run appends to."""

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
from typing import Self

from quaver.errors import HistoryError
from quaver.history.appender import Appender, keep_copy, open_file, sync_folder
from quaver.history.contents import Content, read
from quaver.history.frames import MAGIC, PICKLED, is_unwritten
from quaver.history.lock import Lock, lock
from quaver.history.pickle_check import MalformedRecord
from quaver.history.reader import locate
from quaver.history.records.header import SCHEMA, Header, Run, from_header, from_run, to_header, to_run
from quaver.history.records.notes import from_items, from_note, to_items, to_note
from quaver.history.records.trials import from_measured, from_trial, to_measured, to_trial
from quaver.history.records.unfinished_trials import RETRIES, STEP, digest_step, from_begun, from_dropped, to_begun
from quaver.history.repair import check_resumable, new_file, write_all
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
    and verdict are not recorded, because a criterion may change. Plain data is None, bool, int, float, str, bytes, and
    lists, tuples and dicts of them.

    If another process deletes, replaces, cuts or overwrites the file, all records are written to a new file with a
    warning, and `path` becomes that file. Use a history from one thread only.
    """

    def __init__(self, path: Path, file: io.FileIO, content: Content, lock_held: Lock) -> None:
        """Use `create` or `resume`."""
        self.path = path
        self._file = file
        self._content = content
        self._lock = lock_held
        self._appender = Appender(file, path, content.position.end, len(content.position.gaps))
        self._begun_records: dict[int, tuple[int, int]] = {}  # number of a begun trial -> start and end of its record
        self._numbers = {trial.config: trial.number for trial in content.trials}

    @classmethod
    def create(cls, path: str | os.PathLike[str]) -> History:
        """Start a snapshot at `path`, a file or an existing folder. Existing content is never overwritten."""
        file_path = Path(path) / FILE_NAME if Path(path).is_dir() else Path(path)
        try:
            file_path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise HistoryError(
                f"the folder of {file_path} cannot be created: {error.strerror}. Use another workspace"
            ) from error
        file, lock_held = open_file(file_path, os.O_RDWR | os.O_CREAT), Lock()
        try:
            lock_held = lock(file, file_path)
            if not is_unwritten(file.read(len(MAGIC) + 1)):
                raise HistoryError(
                    f"{file_path} exists already, and quaver never overwrites a history. Continue it with "
                    f"fit(..., resume={str(file_path)!r}), or use another workspace"
                )
            history = cls(file_path, file, Content(), lock_held)
            history._restart()
            sync_folder(file_path.parent)
        except BaseException as error:
            _close(file, lock_held)
            if isinstance(error, OSError):
                raise HistoryError(f"{file_path} cannot be opened: {error.strerror}. Check its disk") from error
            raise
        return history

    @classmethod
    def resume(cls, path: str | os.PathLike[str]) -> History:
        """Continue a snapshot, given the file or its folder. `header` is None if its run ended before `begin`."""
        file_path = locate(path)
        file, lock_held = open_file(file_path, os.O_RDWR), Lock()
        try:
            lock_held = lock(file, file_path)
            content = Content()
            try:
                with open(file.fileno(), "rb", closefd=False) as stream:
                    read(stream, file_path, content)
            except OSError as error:
                raise HistoryError(f"{file_path} cannot be read: {error.strerror}. Check its disk") from error
            history = cls(file_path, file, content, lock_held)
            history._repair()
        except BaseException as error:
            _close(file, lock_held)
            if isinstance(error, OSError):
                raise HistoryError(f"{file_path} cannot be opened: {error.strerror}. Check its disk") from error
            raise
        return history

    @property
    def header(self) -> Header | None:
        """The model that the trials belong to; None until `begin`."""
        return self._content.header

    @property
    def runs(self) -> tuple[Run, ...]:
        """Every `fit` so far, in order."""
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
        """The last recorded trial of the fp32 model."""
        return self._content.baseline

    @property
    def trials(self) -> list[Trial]:
        """All trials without the baseline, in the order they were recorded, not judged. Read-only."""
        return self._content.trials

    @property
    def notes(self) -> PlainDict:
        """The last note of each name, as plain data, with all items that were added to it. Read-only."""
        return self._content.notes

    @property
    def damage(self) -> str | None:
        """A sentence about what `resume` could not read; None if the file was whole."""
        return self._content.damage

    def begin(self, header: Header) -> None:
        """Record the header, once and before everything else."""
        if self.header is not None:
            raise HistoryError(f"{self.path} has a header already; resume it, or use another workspace")
        with self._recording("the header"):
            record = from_header(header)
            recorded_header = to_header(record)
            data = self._content.pack(record)
            start = self._write(data, "the header")
        self._content.add_header(recorded_header)
        self._content.headers, self._content.header_frame = 1, (start, data[: self._content.layout.prefix_size])

    def start_run(self, settings: PlainMapping, versions: Mapping[str, str], started: str | None = None) -> Run:
        """Record that a `fit` begins, new or resumed; the following trials belong to it.

        Run and header are each written twice, at two places, because the file is useless without them.

        Args:
            settings: the settings of the run, as plain data.
            versions: package name -> version.
            started: ISO time; None for now.
        """
        what = "the run"
        with self._recording(what):
            self._need_header()
            now = started or datetime.now(UTC).isoformat(timespec="seconds")
            record = from_run(Run(len(self._content.runs) + 1, now, dict(settings), dict(versions)))
            run = to_run(record)
            self._write(self._content.pack(record), what)
            self._content.add_run(run)
            self._write(self._second_header() + self._content.pack(record), "the second header")
            self._content.headers += 1
        return run

    def append(self, trial: Trial) -> None:
        """Record a trial. Number 0 is the baseline, which may be recorded again."""
        what = f"trial {trial.number} ({'failed' if trial.failed else f'score {trial.score}'})"
        with self._recording(what):
            self._need_header()
            record = from_trial(trial, self._content.places)
            checked = to_trial(record, self._content.places, SCHEMA)
            self._content.check_trial(trial.number)
            self._write(self._content.pack(record), what)
        self._content.add_trial(replace(checked, config=trial.config))
        if trial.number > 0:
            self._numbers[trial.config] = trial.number

    def begin_trial(self, number: int, config: QuantConfig) -> None:
        """Record that a trial begins. If the process ends before its result is recorded, `crashes` counts it."""
        self._begin(number, config.fingerprint, f"the start of trial {number}")

    def begin_step(self, name: str) -> None:
        """Record that native work between trials begins.

        If the process ends during it, `step_crashes` counts it later.
        """
        self._begin(STEP, digest_step(name), f"the start of a step ({name:.80})")

    def end_step(self) -> None:
        """Take back `begin_step`: the process survived the step."""
        self.drop_trial(STEP)

    def step_crashes(self, name: str) -> int:
        """Return how often the process ended during the step of that name."""
        return self.crashed_steps.get(digest_step(name), 0)

    @property
    def crashed_steps(self) -> Mapping[str, int]:
        """How often the process ended during each step, by the sha256 of the step's name."""
        return self._content.begun.crashed_steps

    def _begin(self, number: int, fingerprint: str, what: str) -> None:
        with self._recording(what):
            self._need_header()
            record = from_begun(number, fingerprint)
            data = self._content.pack(record)
            # No sync: written data survives the end of the process. A power cut may lose it, but that is not a crash.
            start = self._write(data, what, sync=False)
        self._content.begun.begin(*to_begun(record))
        self._begun_records[number] = start, start + len(data)

    def drop_trial(self, number: int) -> None:
        """Take back `begin_trial`, also on a full disk: a record at the end of the file is cut off."""
        if not self._content.begun.is_in_progress(number) or self._file.closed:
            return
        what = f"the withdrawal of trial {number}"
        start, end = self._begun_records.pop(number, (0, 0))
        if end == self._appender.end and self._appender.describe_change() is None:
            self._appender.cut(start)
        else:
            with self._recording(what):
                self._write(self._content.pack(from_dropped(number)), what)
        self._content.begun.end(number)

    def crashes(self, config: QuantConfig) -> int:
        """Return how often the process ended while this configuration was tried."""
        return self._content.begun.crashes(config.fingerprint)

    def measure(self, number: int, figures: Mapping[str, float]) -> Trial:
        """Record figures measured of a trial later; return the trial with all its figures."""
        what = f"a measurement of trial {number}"
        with self._recording(what):
            self._need_header()
            record = from_measured(number, figures)
            _, checked = to_measured(record)
            self._content.check_measured(number, checked)
            self._write(self._content.pack(record), what)
        self._content.add_measured(number, checked)
        return self._content.trial(number)

    def note(self, name: str, data: object) -> None:
        """Record named plain data, such as probe results; a later note of the same name replaces it."""
        what = f"the note {name!r}"
        with self._recording(what):
            self._need_header()
            record = from_note(name, data)
            _, copy = to_note(record)
            self._write(self._content.pack(record), what)
        self._content.add_note(name, copy)

    def extend_note(self, name: str, items: PlainMapping) -> None:
        """Add items to a note that is a dict, or begin one. Only the new items are written."""
        what = f"an addition to the note {name!r}"
        with self._recording(what):
            self._need_header()
            record = from_items(name, items)
            _, copy = to_items(record)
            self._content.check_items(name)
            self._write(self._content.pack(record), what)
        self._content.add_items(name, copy)

    def find(self, config: QuantConfig) -> Trial | None:
        """Return the newest trial of this configuration; None if it was not tried."""
        number = self._numbers.get(config)
        return None if number is None else self._content.trial(number)

    def forget_trailing_failures(self, is_fatal: Callable[[QuantConfig], bool] = lambda config: False) -> None:
        """Let `find` ignore the failed trials at the very end, so that they are tried again.

        They stay in the file. A run that ended in failures is resumed once their cause, often eval_func, is fixed.
        Configurations that ended the process more than `RETRIES` times, or for which `is_fatal` returns True, stay
        failed.
        """
        for trial in reversed(self.trials):
            if not trial.failed:
                break
            if self.crashes(trial.config) <= RETRIES and not is_fatal(trial.config):
                self._numbers.pop(trial.config, None)

    def close(self) -> None:
        """Check that the file is unchanged, then close and unlock it. Closing twice is allowed."""
        try:
            if not self._file.closed and self.header is not None and self.path.parent.is_dir():
                self._rescue()
        finally:
            _close(self._file, self._lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"History({str(self.path)!r}, {len(self.trials)} trials)"

    def _write(self, data: bytes, what: str, sync: bool = True) -> int:
        """Append to the file, or to a new one if another process changed it; return the start of the data."""
        if not self._file.closed:
            self._lock.check()
            self._rescue()
        start = self._appender.end
        self._appender.write(data, what, sync)
        return start

    def _second_header(self) -> bytes:
        """Return the header's frame as stored in the file; empty if the file holds it twice already."""
        if self._content.headers != 1:
            return b""
        (start, prefix), layout = self._content.header_frame, self._content.layout
        try:
            return self._appender.read(start, layout.prefix_size + layout.numbers(prefix)[0])
        except OSError as error:
            raise HistoryError(f"{self.path} cannot be read: {error.strerror}. Check its disk") from error

    def _rescue(self) -> None:
        """If another process has changed the file, warn and continue in a new file that holds all records."""
        reason = self._appender.describe_change()
        if reason is None:
            return
        wanted = self.path.with_name(f"{self.path.name}.rescued") if os.path.lexists(self.path) else self.path
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            file, file_path = new_file(wanted)
            lock_held = lock(file, file_path)
            end = write_all(file, file_path, self._content)
        except (HistoryError, OSError) as error:
            raise HistoryError(
                f"{self.path} {reason} while a run wrote it, and its {len(self.trials)} trial(s) "
                f"could not be written to a new file: {error}"
            ) from error
        message = f"{self.path} {reason} while a run wrote it. All its {len(self.trials)} trial(s) are in {file_path}"
        logger.warning("%s; the run continues there", message)
        warnings.warn(message, UserWarning, stacklevel=2)
        _close(self._file, self._lock)
        self.path, self._file, self._lock = file_path, file, lock_held
        self._appender = Appender(file, file_path, end)
        self._begun_records.clear()
        self._content.headers, self._content.layout = 2, PICKLED

    def _need_header(self) -> None:
        if self.header is None:
            raise MalformedRecord("record the header first, with begin()")

    @contextlib.contextmanager
    def _recording(self, what: str) -> Iterator[None]:
        try:
            yield
        except MalformedRecord as error:
            raise HistoryError(f"{what} cannot be recorded in {self.path}: {error}") from error

    def _restart(self) -> None:
        self._appender.end, self._content.layout = 0, PICKLED
        self._appender.write(MAGIC, "the first line")

    def _repair(self) -> None:
        """Cut off an unreadable end. Copy the file first if there is more than one interrupted write."""
        content = self._content
        if content.damage is None:
            return
        tail = os.fstat(self._file.fileno()).st_size - self._appender.end
        check_resumable(self.path, content, tail)
        if content.torn:
            logger.warning("%s: %s; the unreadable bytes are removed", self.path, content.damage)
        elif tail:
            copy = keep_copy(self._file, self.path)
            logger.warning("%s: %s; the damaged file is kept as %s", self.path, content.damage, copy)
        else:
            logger.warning("%s: %s; `quaver history --repair` writes a file without them", self.path, content.damage)
        if self._appender.end == 0:
            self._restart()
        elif tail:
            self._appender.write(b"", "the repair")


def _close(file: io.FileIO, lock_held: Lock) -> None:
    """Close and unlock. Everything is on disk by then, so an error has no consequence."""
    with contextlib.suppress(OSError):
        file.close()
    lock_held.release()
