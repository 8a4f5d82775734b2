"""Write all records of a history to a new file, when the old one is damaged or was removed."""

from __future__ import annotations

import io
import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from quaver.errors import HistoryError
from quaver.history.appender import sync_folder
from quaver.history.contents import Content, read_all
from quaver.history.frames import MAGIC, pack
from quaver.history.pickle_check import MAX_PAYLOAD
from quaver.history.reader import locate
from quaver.history.records.header import from_header, from_run
from quaver.history.records.notes import from_note
from quaver.history.records.trials import from_trial
from quaver.types import PlainDict


@dataclass(frozen=True)
class Repaired:
    """The result of `repair`.

    Attributes:
        path: the new file.
        trials: the number of trials in it, without the baseline.
        lost: a sentence for each part that could not be recovered; empty if the file was whole.
    """

    path: Path
    trials: int
    lost: tuple[str, ...]


def repair(path: str | os.PathLike[str]) -> Repaired:
    """Write every whole record of a snapshot to a new file beside it. The old file is not touched."""
    place = locate(path)
    content = Content()
    try:
        with place.open("rb") as stream:
            lost = [f"frame {number} is refused: {error}" for number, error in read_all(stream, place, content)]
    except OSError as error:
        raise HistoryError(f"{place} cannot be read: {error.strerror}. Check its disk") from error
    if content.damage:
        lost.append(content.damage)
    if content.header is None:
        raise HistoryError(f"{place} cannot be repaired: {'; '.join(lost) or 'it holds no header'}")
    file, target = new_file(place.with_name(f"{place.name}.repaired"))
    with file:
        write_all(file, target, content)
    return Repaired(target, len(content.trials), tuple(lost))


def check_resumable(path: Path, content: Content, tail: int) -> None:
    """Refuse to resume a snapshot whose header is damaged, or with more bytes at the end than one write leaves."""
    if not content.torn and content.header is None:
        raise HistoryError(
            f"the header of {path} is damaged, and its trials have no meaning without it. Nothing was changed. "
            "Restore the file from a copy, or start again in another workspace"
        )
    if tail > content.layout.prefix_size + MAX_PAYLOAD:
        raise HistoryError(
            f"{path} ends in {tail:,} bytes that no run wrote. Nothing was changed. `quaver history {path} --repair` "
            "writes every whole record to a new file"
        )


def new_file(wanted: Path) -> tuple[io.FileIO, Path]:
    """Create a file of the wanted name, or with a number appended if that exists."""
    for number in itertools.count():
        target = wanted.with_name(f"{wanted.name}{f'.{number}' if number else ''}")
        try:
            descriptor = os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o644)
            return io.FileIO(descriptor, "r+"), target
        except FileExistsError:
            continue
        except OSError as error:
            raise HistoryError(f"{target} cannot be created: {error.strerror}. Check the space on that disk") from error
    raise AssertionError("unreachable")


def write_all(file: io.FileIO, path: Path, content: Content) -> int:
    """Write a whole snapshot to an empty file and sync it; return its end. If that fails, the file is removed."""
    end = 0
    try:
        for data in (MAGIC, *map(pack, records(content))):
            remaining = memoryview(data)
            while remaining:
                written = os.pwrite(file.fileno(), remaining, end)
                end, remaining = end + written, remaining[written:]
        os.fsync(file.fileno())
    except OSError as error:
        path.unlink(missing_ok=True)
        raise HistoryError(f"{path} could not be written: {error.strerror}. Check the space on that disk") from error
    sync_folder(path.parent)
    return end


def records(content: Content) -> Iterator[PlainDict]:
    """Yield the records of a history in an order in which they can be read; header and runs twice."""
    if content.header is None:
        return
    header = from_header(content.header)
    yield header
    bounds = [*content.starts, len(content.trials)]
    yield from _trials(content, 0, 0, bounds[0])
    for place, run in enumerate(content.runs):
        yield from_run(run)
        if place == 0:
            yield header
        yield from_run(run)
        yield from _trials(content, run.number, bounds[place], bounds[place + 1])
    if not content.runs:
        yield header
    for name, data in content.notes.items():
        yield from_note(name, data)


def _trials(content: Content, run: int, start: int, end: int) -> Iterator[PlainDict]:
    if content.baseline is not None and content.baseline_run == run:
        yield from_trial(content.baseline, content.places)
    for trial in content.trials[start:end]:
        yield from_trial(trial, content.places)
