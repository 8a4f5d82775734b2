"""The records of a history in memory. Adding a record takes time in proportion to that record alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

from quaver.errors import HistoryError
from quaver.history.frames import PICKLED, FrameReader, Layout, Position, is_kind, pack, unpack
from quaver.history.pickle_check import MalformedRecord
from quaver.history.records.header import SCHEMA, Header, NewerSchema, Opening, Run, to_header, to_run
from quaver.history.records.notes import to_items, to_note
from quaver.history.records.trials import to_measured, to_trial
from quaver.history.records.unfinished_trials import STEP, UnfinishedTrials, to_begun, to_dropped
from quaver.history.snapshot import FILE_NAME, Snapshot
from quaver.trial import Trial
from quaver.types import PlainDict

KINDS = ("header", "run", "begun", "dropped", "trial", "measured", "note", "items")
# Judgement: adding a figure copies all figures of the trial, so their number is bounded.
MAX_FIGURES = 1000


@dataclass(slots=True)
class Content:
    """The records of a history.

    Attributes:
        header: the model that the trials belong to; None until it is recorded.
        schema: the schema in which the file was begun.
        layout: the layout of the file, in which it is continued.
        places: the index of each op, by name, in the order in which trials store their choices.
        headers: how many copies of the header the file holds.
        header_frame: the offset of one copy, and its length and digest.
        runs: the runs, in order.
        baseline: the last baseline recorded.
        trials: the trials in order, without the baseline.
        notes: the last note of each name, with everything added to it.
        starts: for each run, how many trials were recorded before it.
        baseline_run: the number of the run that recorded the baseline.
        begun: the trials in progress, and how often a process ended during each configuration.
        position: how far the file was read.
        damage: a sentence about unreadable bytes; None if there are none.
        torn: True if the damage is an interrupted write rather than the loss of whole frames.
        before_step: where the file ends without the record of a step in progress, if that is its last record.
    """

    header: Header | None = None
    schema: int = SCHEMA
    layout: Layout = PICKLED
    places: dict[str, int] = field(default_factory=dict)
    headers: int = 0
    header_frame: tuple[int, bytes] = (0, b"")
    runs: list[Run] = field(default_factory=list)
    baseline: Trial | None = None
    trials: list[Trial] = field(default_factory=list)
    notes: PlainDict = field(default_factory=dict)
    starts: list[int] = field(default_factory=list)
    baseline_run: int = 0
    begun: UnfinishedTrials = field(default_factory=UnfinishedTrials)
    position: Position = field(default_factory=Position)
    damage: str | None = None
    torn: bool = False
    before_step: Position | None = None
    _places: dict[int, int] = field(default_factory=dict)  # number of a trial -> its index in `trials`
    _shared_notes: set[str] = field(default_factory=set)  # notes that a snapshot also holds: copied before they grow

    def pack(self, record: PlainDict) -> bytes:
        """Return the frame of a record in the layout of the file."""
        return pack(record, self.layout)

    def add(self, record: PlainDict) -> None:
        """Add one record.

        Raises:
            MalformedRecord: the record is not valid.
        """
        kind = record.get("kind")
        if kind not in KINDS:
            raise MalformedRecord(f"field 'kind' must be {', '.join(KINDS[:-1])} or {KINDS[-1]}, not {kind!r:.80}")
        if (kind == "header") != (self.header is None):
            raise MalformedRecord("a header must come first, and another cannot follow")
        match kind:
            case "header":
                self.add_header(to_header(record))
            case "run":
                self.add_run(to_run(record))
            case "trial":
                self.add_trial(to_trial(record, self.places, self.schema))
            case "measured":
                number, figures = to_measured(record)
                if self.has_trial(number) or not self.position.gaps:  # the trial may be in a damaged part
                    self.add_measured(number, figures)
            case "begun":
                self.begun.begin(*to_begun(record))
            case "dropped":
                self.begun.end(to_dropped(record))
            case "note":
                self.add_note(*to_note(record))
            case "items":
                self.add_items(*to_items(record))

    def add_header(self, opening: Opening) -> None:
        """Set the header. Every other record needs it."""
        self.header, self.schema = opening.header, opening.schema
        self.places = {op.name: place for place, op in enumerate(opening.header.ops)}
        if opening.run is not None:
            self.add_run(opening.run)

    def add_run(self, run: Run) -> None:
        """Add the next run, to which the following trials belong, or ignore a copy of the last one."""
        if self.runs and run == self.runs[-1]:
            return
        lost = run.number - len(self.runs) - 1
        if lost and not 0 < lost <= len(self.position.gaps):
            raise MalformedRecord(f"run {run.number} follows {len(self.runs)} runs")
        for number in range(len(self.runs) + 1, run.number):  # these runs are in damaged parts
            self.runs.append(Run(number, run.started, {}, {}))
            self.starts.append(len(self.trials))
        self.runs.append(run)
        self.starts.append(len(self.trials))
        self.begun.restart()

    def add_trial(self, trial: Trial) -> None:
        """Add a trial with a new number, or a baseline, which replaces the earlier one."""
        self.check_trial(trial.number)
        self.begun.end(trial.number)
        if trial.number == 0:
            self.baseline, self.baseline_run = trial, len(self.runs)
            return
        self._places[trial.number] = len(self.trials)
        self.trials.append(trial)

    def check_trial(self, number: int) -> None:
        """Refuse a trial whose number is already used."""
        if number in self._places:
            raise MalformedRecord(f"trial {number} is there already")

    def add_measured(self, number: int, figures: dict[str, float]) -> None:
        """Add figures to a trial."""
        self.check_measured(number, figures)
        trial = self.trial(number)
        trial = replace(trial, measured={**trial.measured, **figures})
        if number == 0:
            self.baseline = trial
        else:
            self.trials[self._places[number]] = trial

    def check_measured(self, number: int, figures: Mapping[str, float]) -> None:
        """Refuse figures of an unknown trial, or more figures than a trial may have."""
        if len(self.trial(number).measured) + len(figures) > MAX_FIGURES:
            raise MalformedRecord(f"trial {number} has more than {MAX_FIGURES:,} figures")

    def has_trial(self, number: int) -> bool:
        """Return True if there is a trial of that number."""
        return number in self._places or (number == 0 and self.baseline is not None)

    def trial(self, number: int) -> Trial:
        """Return the trial of that number.

        Raises:
            MalformedRecord: there is no such trial.
        """
        if number == 0 and self.baseline is not None:
            return self.baseline
        if number not in self._places:
            raise MalformedRecord(f"there is no trial {number}")
        return self.trials[self._places[number]]

    def add_note(self, name: str, data: object) -> None:
        """Add a note, or replace the earlier one of its name."""
        self.notes[name] = data
        self._shared_notes.discard(name)

    def add_items(self, name: str, items: PlainDict) -> None:
        """Add items to a note, or begin it."""
        self.check_items(name)
        if name in self._shared_notes or name not in self.notes:
            self.notes[name] = dict(self.notes.get(name, {}))
            self._shared_notes.discard(name)
        self.notes[name].update(items)

    def check_items(self, name: str) -> None:
        """Refuse items for a note that is not a dict."""
        if type(self.notes.get(name, {})) is not dict:
            raise MalformedRecord(f"the note {name!r:.80} is not a dict, and nothing can be added to it")

    def snapshot(self, path: Path) -> Snapshot:
        """Return a read-only view of the current records, which later records do not change."""
        assert self.header is not None
        self._shared_notes.update(self.notes)
        return Snapshot(
            path=path,
            header=self.header,
            runs=tuple(self.runs),
            trials=tuple(self.trials),
            baseline=self.baseline,
            notes=self.notes.copy(),
            starts=tuple(self.starts),
            baseline_run=self.baseline_run,
            damage=self.damage,
        )


def read(stream: BinaryIO, path: Path, content: Content) -> None:
    """Add everything that an open snapshot holds beyond `content`.

    Damaged bytes are skipped; those at the end are read again the next time.

    Args:
        stream: the snapshot, open for reading.
        path: its path, for error messages.
        content: the records read before; new ones are added to it.

    Raises:
        HistoryError: a frame has a correct checksum and invalid content, or the file is not a snapshot.
    """
    for number, error in read_all(stream, path, content):
        raise HistoryError(
            f"{path}: frame {number} is refused: {error}. Its checksum is correct, so this is no disk "
            "error: quaver did not write it. Do not trust the file; use a copy from a known source"
        ) from error


def read_all(stream: BinaryIO, path: Path, content: Content) -> Iterator[tuple[int, MalformedRecord]]:
    """Add everything, but yield each refused frame with its number; it is skipped if the caller continues."""
    frames = FrameReader(stream, content.position, content.layout if content.position.end else None)
    content.damage, content.torn = None, False
    wrong_start = content.position.end == 0 and not frames.has_magic()
    if wrong_start and not _has_snapshot_frame(stream, frames):
        if not frames.is_unwritten():
            raise HistoryError(f"{path} is not a {FILE_NAME}: its first line is different. Give the path of a snapshot")
        content.damage, content.torn = "it ends before it begins", True
        return
    content.layout = frames.layout
    for payload in frames:
        previous, current = content.position, frames.position
        content.position = current
        try:
            if content.header is None and current.gaps:
                _find_header(stream, content)
                if content.header is None:
                    content.position = frames.position = Position(len(frames.layout.magic))
                    break
            if current.prefix == content.header_frame[1]:
                content.headers += 1
                continue
            record = unpack(payload)
            content.add(record)
            content.before_step = previous if record["kind"] == "begun" and record["number"] == STEP else None
            if not content.header_frame[1]:
                content.headers, content.header_frame = 1, (current.last, current.prefix)
        except NewerSchema as error:
            raise HistoryError(f"{path} was written by a newer quaver: {error}. Upgrade quaver to read it") from error
        except MalformedRecord as error:
            content.position = previous  # the next reading meets the frame again
            yield current.count, error
    content.position, content.torn = frames.position, frames.torn
    content.damage = _damage(frames, wrong_start)


def _has_snapshot_frame(stream: BinaryIO, frames: FrameReader) -> bool:
    """Return True if a file with a damaged first line continues like a snapshot."""
    first = next(iter(FrameReader(stream)), b"") if frames.size > len(frames.layout.magic) else b""
    return is_kind(first, "header") or is_kind(first, "run")


def _find_header(stream: BinaryIO, content: Content) -> None:
    """Read the second copy of the header, because the first is damaged."""
    frames = FrameReader(stream)
    for payload in frames:
        if is_kind(payload, "header"):
            content.add(unpack(payload))
            content.header_frame = frames.position.last, frames.position.prefix
            return


def _damage(frames: FrameReader, wrong_start: bool) -> str | None:
    sentences = ["its first line is damaged"] if wrong_start else []
    gaps = frames.position.gaps
    if gaps:
        places = ", ".join(f"{number} ({size:,} bytes)" for number, size in gaps[:5]) + (", ..." if gaps[5:] else "")
        sentences.append(f"{len(gaps)} damaged place(s) skipped: frame {places}")
    if frames.lost:
        reason = "an interrupted write" if frames.torn else "damaged data"
        sentences.append(f"{frames.lost:,} bytes after frame {frames.position.count} are unreadable ({reason})")
    return "; ".join(sentences) or None
