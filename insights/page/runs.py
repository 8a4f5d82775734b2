"""The runs that the page shows, found in folders and read as they grow. A browser names them by keys, not paths."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from quaver.history import FILE_NAME
from quaver.insights.data.op_rows import OpRow, op_rows
from quaver.insights.data.run_reader import FollowedRun, RunData


@dataclass(frozen=True)
class ViewContext:
    """One run.

    Attributes:
        data: the run.
        ops: its ops in the best trial, made when they are asked for.
        others: all runs by key, with their names, for views that compare them.
        op: the place of the op that was chosen; None if none was.
    """

    data: RunData
    ops: Callable[[], list[OpRow]]
    others: dict[str, str] = field(default_factory=dict)
    op: int | None = None


# Runs of one folder; the newest are shown.
MOST = 500


class Runs:
    """All runs of some folders.

    Attributes:
        lock: whoever reads a run holds it, because another thread may be reading its file.
    """

    def __init__(self, folders: Sequence[str | os.PathLike[str]]) -> None:
        self.lock = threading.RLock()
        self._folders = [Path(folder).absolute() for folder in folders]
        self._runs: dict[str, FollowedRun] = {}
        self._ops: dict[tuple[str, int | None], tuple[int, list[OpRow]]] = {}
        # The latest is what is looked at first; a large one takes as long to read as a browser to get ready.
        latest = self.scan()[:1]
        threading.Thread(target=lambda: [self.poll(key) for key in latest], daemon=True, name="quaver-read").start()

    def scan(self) -> list[str]:
        """The keys of all runs, the latest first. New ones are found."""
        places = [place for folder in self._folders for place in _places(folder)]
        found = {hashlib.sha256(str(place).encode()).hexdigest()[:16]: place for place in places}
        self._runs = {key: self._runs.get(key) or FollowedRun(place) for key, place in found.items()}
        return list(self._runs)

    def label(self, key: str) -> str:
        """What a run is called: its folder."""
        place = self._runs[key].path
        return place.name if place.name != FILE_NAME else place.parent.name

    def poll(self, key: str | None) -> RunData | None:
        """A run as it is now; None if there is none of that key, or nothing in it."""
        run = self._runs.get(key or "")
        return None if run is None else run.poll()

    def problem(self, key: str | None) -> str:
        """Why a run cannot be shown."""
        run = self._runs.get(key or "")
        if run is None:
            return "There is no run here yet."
        return run.problem or "This run has not begun: there is no fp32 score yet."

    def ops(self, key: str, data: RunData, number: int | None = None) -> list[OpRow]:
        """The ops of a trial, made once for each change of the run."""
        version, rows = self._ops.get((key, number), (-1, []))
        if version != data.version:
            rows = op_rows(data, number)
            self._ops = {one: held for one, held in self._ops.items() if one[0] == key and held[0] == data.version}
            self._ops[key, number] = data.version, rows
        return rows


def _places(folder: Path) -> list[Path]:
    """A run's own folder, or those of the runs in a folder; one that is still to be made counts as the former."""
    if folder.is_file() or (folder / FILE_NAME).exists():
        return [folder]
    try:
        inner = [one for one in folder.iterdir() if (one / FILE_NAME).is_file()]
    except OSError:
        return []
    return sorted(inner, key=lambda one: one.name, reverse=True)[:MOST]
