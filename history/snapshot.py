"""Reading a snapshot: whatever is whole, and a clear word about the rest."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from quaver.errors import HistoryError
from quaver.history.frames import MAGIC, FrameReader, Malformed, unpack
from quaver.history.records import Header, NewerSchema, to_header, to_note, to_trial
from quaver.paths import expanded
from quaver.trial import Trial

FILE_NAME = "history.snapshot"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a history.snapshot holds; read-only, and no link to the file.

    Attributes:
        path: where it was read.
        header: the model, the settings and the calibration it belongs to.
        trials: in the order they were recorded, the baseline not among them.
        baseline: the fp32 model's trial (number 0); None if the run ended before it.
        notes: name -> plain data, the last of each name.
        damage: what could not be read, in a sentence; None if the file is whole.
    """

    path: Path
    header: Header
    trials: tuple[Trial, ...] = ()
    baseline: Trial | None = None
    notes: dict[str, Any] = field(default_factory=dict)
    damage: str | None = None

    def trial(self, number: int) -> Trial:
        """The trial of that number; 0 is the fp32 baseline."""
        known = {trial.number: trial for trial in self.trials}
        if self.baseline is not None:
            known[0] = self.baseline
        if number not in known:
            raise HistoryError(f"{self.path} has no trial {number!r}; it has {_ranges(known)}")
        return known[number]


def read_snapshot(path: str | os.PathLike[str]) -> Snapshot:
    """Read a snapshot, given the file or the folder that holds it. A run that is still writing is not disturbed."""
    place = locate(path)
    try:
        with place.open("rb") as stream:
            content = read(stream, place)
    except OSError as error:
        raise HistoryError(f"{place} cannot be read: {error.strerror}. Check its permissions and its disk") from error
    if content.header is None:
        raise HistoryError(
            f"{place} holds no trial yet: {content.damage or 'its run ended before the first'}. Tune again"
        )
    if content.damage:
        logger.log(logging.INFO if content.torn else logging.WARNING, "%s: %s", place, content.damage)
    return Snapshot(
        path=place,
        header=content.header,
        trials=tuple(content.trials),
        baseline=content.baseline,
        notes=content.notes,
        damage=content.damage,
    )


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
        raise HistoryError(f"{place} is not a file; give the {FILE_NAME} of an earlier run, or its workspace")
    return place


@dataclass(slots=True)
class Content:
    """What was read, frame by frame.

    Attributes:
        end: where the readable part of the file ends; 0 if not even the magic line is complete.
        damage: what follows it, in a sentence; None if nothing does.
        torn: whether the damage is a write that was interrupted, not the loss of whole frames.
    """

    header: Header | None = None
    baseline: Trial | None = None
    trials: list[Trial] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)
    end: int = 0
    damage: str | None = None
    torn: bool = False
    names: tuple[str, ...] = ()
    numbers: set[int] = field(default_factory=set)

    def add(self, record: dict[str, Any]) -> None:
        """Take in one record, or say what is wrong with it."""
        kind = record.get("kind")
        if (kind == "header") != (self.header is None):
            raise Malformed("a header must come first, and only once")
        if kind == "header":
            self.add_header(to_header(record))
        elif kind == "trial":
            self.add_trial(to_trial(record, self.names))
        elif kind == "note":
            name, data = to_note(record)
            self.notes[name] = data
        else:
            raise Malformed(f"field 'kind' must be header, trial or note, not {kind!r:.80}")

    def add_header(self, header: Header) -> None:
        """Trials can follow from now on."""
        self.header = header
        self.names = tuple(op.name for op in header.ops)

    def add_trial(self, trial: Trial) -> None:
        """A trial of a new number, or the baseline, of which the last counts."""
        if trial.number == 0:
            self.baseline = trial
            return
        self.check_number(trial.number)
        self.numbers.add(trial.number)
        self.trials.append(trial)

    def check_number(self, number: int) -> None:
        """Each number is given once."""
        if number in self.numbers:
            raise Malformed(f"trial {number} is there already")


def read(stream: BinaryIO, path: Path) -> Content:
    """Everything readable in an open snapshot. Damaged bytes end the reading; a whole but wrong frame is refused."""
    frames = FrameReader(stream)
    content = Content()
    magic = frames.magic()
    if magic != MAGIC:
        if frames.size >= len(MAGIC) or not MAGIC.startswith(magic):
            raise HistoryError(f"{path} is not a {FILE_NAME}: it does not begin like one. Give the path of a snapshot")
        content.damage, content.torn = "it ends before it begins", True
        return content
    for payload in frames:
        try:
            content.add(unpack(payload))
        except NewerSchema as error:
            raise HistoryError(f"{path} was written by a newer quaver: {error}. Upgrade quaver to read it") from error
        except Malformed as error:
            raise HistoryError(
                f"{path}: frame {frames.count} is refused: {error}. Its checksum is right, so this is not an accident "
                "of the disk: quaver did not write it. Do not trust the file; use a copy from a known source"
            ) from error
    content.end, content.torn = frames.end, frames.torn
    if frames.lost:
        what = "an interrupted write" if frames.torn else "damaged data"
        content.damage = f"{frames.lost:,} bytes after frame {frames.count} are unreadable ({what})"
    return content


def _ranges(numbers: Iterable[int]) -> str:
    """Numbers as a person writes them: 0 to 7, 9."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1] = [runs[-1][0], number]
        else:
            runs.append([number])
    return ", ".join(" to ".join(map(str, run)) for run in runs[:20]) + (", ..." if len(runs) > 20 else "") or "none"
