"""What was read or written so far, record by record. Each takes the time that the record itself needs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

from quaver.errors import HistoryError
from quaver.history.frames import MAGIC, FrameReader, Malformed, Position, unpack
from quaver.history.header import SCHEMA, Header, NewerSchema, Opening, to_header
from quaver.history.notes import to_items, to_note
from quaver.history.runs import Run, to_run
from quaver.history.snapshot import FILE_NAME, Snapshot
from quaver.history.trials import to_measured, to_trial
from quaver.trial import Trial

KINDS = ("header", "run", "trial", "measured", "note", "items")


@dataclass(slots=True)
class Content:
    """The records of a history.

    Attributes:
        header: what the trials belong to; None until there is one.
        schema: in which the file was begun.
        names: of the ops, in the order that trials store them.
        runs: in order.
        baseline: the last that was recorded.
        trials: in order, the baseline not among them.
        notes: the last of each name, with all that was added to it.
        starts: for each run, how many trials were recorded before it.
        baseline_run: number of the run that recorded the baseline.
        highest: number of a trial.
        position: how far the file was read.
        damage: what follows, in a sentence; None if nothing does.
        torn: whether the damage is a write that was interrupted, not the loss of whole frames.
    """

    header: Header | None = None
    schema: int = SCHEMA
    names: tuple[str, ...] = ()
    runs: list[Run] = field(default_factory=list)
    baseline: Trial | None = None
    trials: list[Trial] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)
    starts: list[int] = field(default_factory=list)
    baseline_run: int = 0
    highest: int = 0
    position: Position = field(default_factory=Position)
    damage: str | None = None
    torn: bool = False
    _places: dict[int, int] = field(default_factory=dict)  # number of a trial -> where it stands in `trials`
    _given: set[str] = field(default_factory=set)  # notes that a snapshot holds, too: to be copied before they grow

    def add(self, record: dict[str, Any]) -> None:
        """Take in one record, or say what is wrong with it."""
        kind = record.get("kind")
        if kind not in KINDS:
            raise Malformed(f"field 'kind' must be {', '.join(KINDS[:-1])} or {KINDS[-1]}, not {kind!r:.80}")
        if (kind == "header") != (self.header is None):
            raise Malformed("a header must come first, and only once")
        match kind:
            case "header":
                self.add_header(to_header(record))
            case "run":
                self.add_run(to_run(record))
            case "trial":
                self.add_trial(to_trial(record, self.names, self.schema))
            case "measured":
                self.add_measured(*to_measured(record))
            case "note":
                self.add_note(*to_note(record))
            case "items":
                self.add_items(*to_items(record))

    def add_header(self, opening: Opening) -> None:
        """All else can follow from now on."""
        self.header, self.schema = opening.header, opening.schema
        self.names = tuple(op.name for op in opening.header.ops)
        if opening.run is not None:
            self.add_run(opening.run)

    def add_run(self, run: Run) -> None:
        """The next run, to which the trials that follow belong."""
        if run.number != len(self.runs) + 1:
            raise Malformed(f"run {run.number} follows {len(self.runs)} runs")
        self.runs.append(run)
        self.starts.append(len(self.trials))

    def add_trial(self, trial: Trial) -> None:
        """A trial of a new number, or the baseline, of which the last counts."""
        self.check_trial(trial.number)
        if trial.number == 0:
            self.baseline, self.baseline_run = trial, len(self.runs)
            return
        self._places[trial.number] = len(self.trials)
        self.highest = max(self.highest, trial.number)
        self.trials.append(trial)

    def check_trial(self, number: int) -> None:
        """Each number is given once."""
        if number in self._places:
            raise Malformed(f"trial {number} is there already")

    def add_measured(self, number: int, figures: dict[str, float]) -> None:
        """Figures of a trial, added to those it has."""
        trial = self.known(number)
        trial = replace(trial, measured={**trial.measured, **figures})
        if number == 0:
            self.baseline = trial
        else:
            self.trials[self._places[number]] = trial

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

    def add_items(self, name: str, items: dict[str, Any]) -> None:
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

    Damaged bytes end the reading, and are looked at anew the next time; a whole but wrong frame is refused.
    """
    frames = FrameReader(stream, content.position)
    content.damage, content.torn = None, False
    if content.position.end == 0:
        magic = frames.magic()
        if magic != MAGIC:
            if frames.size >= len(MAGIC) or not MAGIC.startswith(magic):
                raise HistoryError(
                    f"{path} is not a {FILE_NAME}: it does not begin like one. Give the path of a snapshot"
                )
            content.damage, content.torn = "it ends before it begins", True
            return
    for payload in frames:
        try:
            content.add(unpack(payload))
        except NewerSchema as error:
            raise HistoryError(f"{path} was written by a newer quaver: {error}. Upgrade quaver to read it") from error
        except Malformed as error:
            raise HistoryError(
                f"{path}: frame {frames.position.count} is refused: {error}. Its checksum is right, so this is not an "
                "accident of the disk: quaver did not write it. Do not trust the file; use a copy from a known source"
            ) from error
        content.position = frames.position
    content.position, content.torn = frames.position, frames.torn
    if frames.lost:
        what = "an interrupted write" if frames.torn else "damaged data"
        content.damage = f"{frames.lost:,} bytes after frame {frames.position.count} are unreadable ({what})"
