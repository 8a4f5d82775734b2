"""What was read or written so far, record by record. Each takes the time that the record itself needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

from quaver.errors import HistoryError
from quaver.history.frames import MAGIC, FrameReader, Position, is_kind, unpack
from quaver.history.pickle_check import Malformed
from quaver.history.records.header import SCHEMA, Header, NewerSchema, Opening, Run, to_header, to_run
from quaver.history.records.notes import to_items, to_note
from quaver.history.records.trials import to_measured, to_trial
from quaver.history.records.unfinished_trials import STEP, Begun, to_begun, to_dropped
from quaver.history.snapshot import FILE_NAME, Snapshot
from quaver.trial import Trial
from quaver.types import PlainDict

KINDS = ("header", "run", "begun", "dropped", "trial", "measured", "note", "items")
# Figures of one trial; more would make each further one dear.
MAX_FIGURES = 1000


@dataclass(slots=True)
class Content:
    """The records of a history.

    Attributes:
        header: what the trials belong to; None until there is one.
        schema: in which the file was begun.
        places: of the ops, by name, in the order that trials store them.
        headers: how often the header stands in the file.
        header_frame: where one of them begins, and its length and digest.
        runs: in order.
        baseline: the last that was recorded.
        trials: in order, the baseline not among them.
        notes: the last of each name, with all that was added to it.
        starts: for each run, how many trials were recorded before it.
        baseline_run: number of the run that recorded the baseline.
        begun: trials that were begun.
        position: how far the file was read.
        damage: what follows, in a sentence; None if nothing does.
        torn: whether the damage is a write that was interrupted, not the loss of whole frames.
        before_step: where the file ends without the record of a step that is under way, if that is its last record.
    """

    header: Header | None = None
    schema: int = SCHEMA
    places: dict[str, int] = field(default_factory=dict)
    headers: int = 0
    header_frame: tuple[int, bytes] = (0, b"")
    runs: list[Run] = field(default_factory=list)
    baseline: Trial | None = None
    trials: list[Trial] = field(default_factory=list)
    notes: PlainDict = field(default_factory=dict)
    starts: list[int] = field(default_factory=list)
    baseline_run: int = 0
    begun: Begun = field(default_factory=Begun)
    position: Position = field(default_factory=Position)
    damage: str | None = None
    torn: bool = False
    before_step: Position | None = None
    _places: dict[int, int] = field(default_factory=dict)  # number of a trial -> where it stands in `trials`
    _given: set[str] = field(default_factory=set)  # notes that a snapshot holds, too: to be copied before they grow

    def add(self, record: PlainDict) -> None:
        """Take in one record, or say what is wrong with it."""
        kind = record.get("kind")
        if kind not in KINDS:
            raise Malformed(f"field 'kind' must be {', '.join(KINDS[:-1])} or {KINDS[-1]}, not {kind!r:.80}")
        if (kind == "header") != (self.header is None):
            raise Malformed("a header must come first, and another cannot follow")
        match kind:
            case "header":
                self.add_header(to_header(record))
            case "run":
                self.add_run(to_run(record))
            case "trial":
                self.add_trial(to_trial(record, self.places, self.schema))
            case "measured":
                number, figures = to_measured(record)
                if self.knows(number) or not self.position.gaps:  # the trial may have stood in what was passed over
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
        """All else can follow from now on."""
        self.header, self.schema = opening.header, opening.schema
        self.places = {op.name: place for place, op in enumerate(opening.header.ops)}
        if opening.run is not None:
            self.add_run(opening.run)

    def add_run(self, run: Run) -> None:
        """The next run, to which the trials that follow belong; or the last one once more."""
        if self.runs and run == self.runs[-1]:
            return
        lost = run.number - len(self.runs) - 1
        if lost and not 0 < lost <= len(self.position.gaps):
            raise Malformed(f"run {run.number} follows {len(self.runs)} runs")
        for number in range(len(self.runs) + 1, run.number):  # they stood in what was passed over
            self.runs.append(Run(number, run.started, {}, {}))
            self.starts.append(len(self.trials))
        self.runs.append(run)
        self.starts.append(len(self.trials))
        self.begun.restart()

    def add_trial(self, trial: Trial) -> None:
        """A trial of a new number, or the baseline, of which the last counts."""
        self.check_trial(trial.number)
        self.begun.end(trial.number)
        if trial.number == 0:
            self.baseline, self.baseline_run = trial, len(self.runs)
            return
        self._places[trial.number] = len(self.trials)
        self.trials.append(trial)

    def check_trial(self, number: int) -> None:
        """Each number is given once."""
        if number in self._places:
            raise Malformed(f"trial {number} is there already")

    def add_measured(self, number: int, figures: dict[str, float]) -> None:
        """Figures of a trial, added to those it has."""
        self.check_measured(number, figures)
        trial = self.known(number)
        trial = replace(trial, measured={**trial.measured, **figures})
        if number == 0:
            self.baseline = trial
        else:
            self.trials[self._places[number]] = trial

    def check_measured(self, number: int, figures: Mapping[str, float]) -> None:
        """The trial must be there, and have room for so many figures."""
        if len(self.known(number).measured) + len(figures) > MAX_FIGURES:
            raise Malformed(f"trial {number} has more than {MAX_FIGURES:,} figures")

    def knows(self, number: int) -> bool:
        """Whether there is a trial of that number."""
        return number in self._places or (number == 0 and self.baseline is not None)

    def known(self, number: int) -> Trial:
        """The trial of that number, which must be there."""
        if number == 0 and self.baseline is not None:
            return self.baseline
        if number not in self._places:
            raise Malformed(f"there is no trial {number}")
        return self.trials[self._places[number]]

    def add_note(self, name: str, data: Any) -> None:
        """A note, instead of an earlier one of its name."""
        self.notes[name] = data
        self._given.discard(name)

    def add_items(self, name: str, items: PlainDict) -> None:
        """More of a note, or the first of it."""
        self.check_items(name)
        if name in self._given or name not in self.notes:
            self.notes[name] = dict(self.notes.get(name, {}))
            self._given.discard(name)
        self.notes[name].update(items)

    def check_items(self, name: str) -> None:
        """Only to a table something can be added."""
        if type(self.notes.get(name, {})) is not dict:
            raise Malformed(f"the note {name!r:.80} is not a dict, and nothing can be added to it")

    def snapshot(self, path: Path) -> Snapshot:
        """All of it as it is now, whatever is added later."""
        assert self.header is not None
        self._given.update(self.notes)
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
    """Take in all that an open snapshot holds beyond `content`, which is what was read of it before.

    Damaged bytes are passed over; those at the end are looked at anew the next time. A whole but wrong frame is
    refused.
    """
    for number, error in read_all(stream, path, content):
        raise HistoryError(
            f"{path}: frame {number} is refused: {error}. Its checksum is right, so this is not an "
            "accident of the disk: quaver did not write it. Do not trust the file; use a copy from a known source"
        ) from error


def read_all(stream: BinaryIO, path: Path, content: Content) -> Iterator[tuple[int, Malformed]]:
    """The same, but each frame that is refused is told, with its number, and left out if the caller goes on."""
    frames = FrameReader(stream, content.position)
    content.damage, content.torn = None, False
    wrong_start = content.position.end == 0 and frames.magic() != MAGIC
    if wrong_start and not _begins_all_the_same(stream, frames):
        if not frames.unwritten():
            raise HistoryError(f"{path} is not a {FILE_NAME}: it does not begin like one. Give the path of a snapshot")
        content.damage, content.torn = "it ends before it begins", True
        return
    for payload in frames:
        before, at = content.position, frames.position
        content.position = at
        try:
            if content.header is None and at.gaps:
                _find_header(stream, content)
                if content.header is None:
                    content.position = frames.position = Position(len(MAGIC))
                    break
            if at.prefix == content.header_frame[1]:
                content.headers += 1
                continue
            record = unpack(payload)
            content.add(record)
            content.before_step = before if record["kind"] == "begun" and record["number"] == STEP else None
            if not content.header_frame[1]:
                content.headers, content.header_frame = 1, (at.last, at.prefix)
        except NewerSchema as error:
            raise HistoryError(f"{path} was written by a newer quaver: {error}. Upgrade quaver to read it") from error
        except Malformed as error:
            content.position = before  # a reader that comes again finds it again
            yield at.count, error
    content.position, content.torn = frames.position, frames.torn
    content.damage = _damage(frames, wrong_start)


def _begins_all_the_same(stream: BinaryIO, frames: FrameReader) -> bool:
    """Whether a file whose first line is damaged goes on as a snapshot does."""
    first = next(iter(FrameReader(stream)), b"") if frames.size > len(MAGIC) else b""
    return is_kind(first, "header") or is_kind(first, "run")


def _find_header(stream: BinaryIO, content: Content) -> None:
    """Take the header from its second place, because the first is damaged."""
    frames = FrameReader(stream)
    for payload in frames:
        if is_kind(payload, "header"):
            content.add(unpack(payload))
            content.header_frame = frames.position.last, frames.position.prefix
            return


def _damage(frames: FrameReader, wrong_start: bool) -> str | None:
    said = ["its first line is damaged"] if wrong_start else []
    gaps = frames.position.gaps
    if gaps:
        places = ", ".join(f"{number} ({size:,} bytes)" for number, size in gaps[:5]) + (", ..." if gaps[5:] else "")
        said.append(f"{len(gaps)} damaged place(s) passed over: frame {places}")
    if frames.lost:
        what = "an interrupted write" if frames.torn else "damaged data"
        said.append(f"{frames.lost:,} bytes after frame {frames.position.count} are unreadable ({what})")
    return "; ".join(said) or None
