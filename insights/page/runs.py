"""The runs that the page shows, found in folders and read as they grow. A browser names them by keys, not by paths."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from quaver.formatting import plural
from quaver.history import FILE_NAME
from quaver.insights.data.op_rows import OpRow, op_rows
from quaver.insights.data.run_reader import FollowedRun, RunData
from quaver.insights.data.summary import model_name, strategy_name, verdict_word


@dataclass(frozen=True)
class ViewContext:
    """The run that a view shows.

    Attributes:
        data: the run.
        ops: returns its ops in the best trial.
        all_runs: all runs by key, with their names, for views that compare them.
        op: the place of the op that was chosen; None if none was.
    """

    data: RunData
    ops: Callable[[], list[OpRow]]
    all_runs: dict[str, str] = field(default_factory=dict)
    op: int | None = None


# Judgement: runs of one folder that are listed, the newest first.
MAX_RUNS = 500
# Judgement: runs that are read at the start, for their model, strategy and verdict in the list.
MAX_READ = 20


class Runs:
    """All runs in some folders.

    Attributes:
        lock: to be held while a run is read, because another thread may be reading its file.
    """

    def __init__(self, folders: Sequence[str | os.PathLike[str]]) -> None:
        self.lock = threading.RLock()
        self._folders = [Path(folder).absolute() for folder in folders]
        self._runs: dict[str, FollowedRun] = {}
        self._described: dict[str, tuple[tuple[object, ...], str]] = {}
        self._ops: dict[tuple[str, int | None], tuple[int, list[OpRow]]] = {}
        # The latest run is shown first. Reading a large one takes as long as a browser needs to start.
        latest = self.scan()[:MAX_READ]
        threading.Thread(target=self._read, args=(latest,), daemon=True, name="quaver-read").start()

    def _read(self, keys: Sequence[str]) -> None:
        """Read runs in the background, one at a time, so that a request waits for one of them at most."""
        for key in keys:
            with self.lock:
                self.poll(key)

    def scan(self) -> list[str]:
        """Return the keys of all runs, the latest first, including new ones."""
        places = [place for folder in self._folders for place in _places(folder)]
        places.sort(key=_name, reverse=True)  # by default a run is named after its start time
        runs = {hashlib.sha256(str(place).encode()).hexdigest()[:16]: place for place in places}
        self._runs = {key: self._runs.get(key) or FollowedRun(place) for key, place in runs.items()}
        return list(self._runs)

    def label(self, key: str) -> str:
        """Return the name of a run: its folder."""
        return _name(self._runs[key].path)

    def description(self, key: str) -> str:
        """Return the folder of a run, and its model, strategy, verdict and age if the run has been read."""
        run = self._runs[key]
        data = run.data
        if data is None:
            return " · ".join([_name(run.path), *_age(run.path)])
        version = data.version, data.state
        if self._described.get(key, ((), ""))[0] != version:
            parts = (_name(run.path), model_name(data), strategy_name(data), verdict_word(data))
            self._described[key] = version, " · ".join(filter(None, parts))
        return " · ".join([self._described[key][1], *_age(run.path)])

    def poll(self, key: str | None) -> RunData | None:
        """Return a run in its current state; None if there is none of that key, or it is empty."""
        run = self._runs.get(key or "")
        return None if run is None else run.poll()

    def problem(self, key: str | None) -> str:
        """Return why a run cannot be shown."""
        run = self._runs.get(key or "")
        if run is None:
            return "There is no run here yet."
        return run.problem or "This run has not begun: there is no fp32 score yet."

    def ops(self, key: str, data: RunData, number: int | None = None) -> list[OpRow]:
        """Return the ops of a trial, computed once for each change of the run."""
        version, rows = self._ops.get((key, number), (-1, []))
        if version != data.version:
            rows = op_rows(data, number)
            self._ops = {
                cached: entry for cached, entry in self._ops.items() if cached[0] == key and entry[0] == data.version
            }
            self._ops[key, number] = data.version, rows
        return rows


def _age(place: Path) -> list[str]:
    """Return how long ago a run was written, in a list that is empty if that cannot be read."""
    path = place if place.is_file() else place / FILE_NAME
    try:
        seconds = time.time() - path.stat().st_mtime
    except OSError:
        return []
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= length:
            return [f"{plural(int(seconds // length), unit)} ago"]
    return ["just now"]


def _name(place: Path) -> str:
    return place.name if place.name != FILE_NAME else place.parent.name


def _places(folder: Path) -> list[Path]:
    """Return the folder itself if it is a run, even one that has not begun; else the runs in it."""
    if folder.is_file() or (folder / FILE_NAME).exists():
        return [folder]
    try:
        inner = [entry for entry in folder.iterdir() if (entry / FILE_NAME).is_file()]
    except OSError:
        return []
    return sorted(inner, key=lambda entry: entry.name, reverse=True)[:MAX_RUNS]
