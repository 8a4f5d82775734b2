"""Read a run from its folder, repeatedly while it grows. Each record is read and judged once."""

from __future__ import annotations

import bisect
import enum
import os
import threading
from pathlib import Path

from quaver.criterion import Criterion
from quaver.engine.run.finish import ENDING_NOTE as ENDED
from quaver.engine.scoring.confirmation import CONFIRMATION_NOTE as CONFIRMED
from quaver.engine.scoring.confirmation import confirmations, is_required
from quaver.engine.scoring.judge import Judge
from quaver.errors import QuaverError
from quaver.history import FILE_NAME, Snapshot, SnapshotReader, is_being_written
from quaver.insights.data.best_model import Inspection
from quaver.insights.data.trial_choices import Change, TrialChoices
from quaver.insights.data.trial_rows import TrialRow, describe_changes
from quaver.ops import FP32, Op, QuantConfig
from quaver.space import TuningSpace
from quaver.trial import Trial
from quaver.trial_lineage import LOOK_BACK
from quaver.types import PlainDict


class RunState(enum.StrEnum):
    """The state of a run."""

    WAITING = "has not begun"
    RUNNING = "running"
    ENDED = "ended"
    KILLED = "killed"
    UNREADABLE = "unreadable"


class RunData:
    """Everything that is known of a run.

    Attributes:
        snapshot: the content of its file.
        judge: its trials, judged.
        picks: the choices of each trial.
        rows: its trials as rows of a table, in order.
        state: whether it is running, has ended or was killed.
        problem: why it cannot be read any further; empty if it can.
        version: a number that grows with each change.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.ops: tuple[Op, ...] = snapshot.header.ops
        self.places = {op.name: place for place, op in enumerate(self.ops)}
        self.picks = TrialChoices([op.name for op in self.ops])
        self.rows: list[TrialRow] = []
        self.state, self.problem, self.version = RunState.RUNNING, "", 0
        self.judge = self._new_judge()
        self._unjudged: list[Trial] = []
        self._index: dict[int, int] = {}
        self._order: list[tuple[int, int]] = []  # number and row of each trial, ordered by number
        self._inspection: Inspection | None = None
        self.update(snapshot)

    @property
    def name(self) -> str:
        """The name of its folder."""
        return self.snapshot.path.parent.name

    @property
    def folder(self) -> Path:
        """Its folder."""
        return self.snapshot.path.parent

    @property
    def criterion(self) -> Criterion:
        """The criterion that decides whether a trial is met."""
        return self.judge.criterion

    @property
    def baseline(self) -> Trial | None:
        """The fp32 model's trial."""
        return self.snapshot.baseline

    @property
    def best(self) -> Trial | None:
        """The best trial so far."""
        return self.judge.best

    @property
    def ended(self) -> PlainDict:
        """The note about the end of the latest run; empty if there is none."""
        noted = self.snapshot.notes.get(ENDED)
        return noted if isinstance(noted, dict) and noted.get("run") == self.snapshot.run.number else {}

    @property
    def inspection(self) -> Inspection:
        """The records about the best model."""
        if self._inspection is None or not self._inspection.is_of(self.snapshot.notes):
            self._inspection = Inspection(self.snapshot.notes, self.places)
        return self._inspection

    def row(self, number: int) -> TrialRow | None:
        """Return the trial of a number as a row; None if there is none."""
        place = self._index.get(number)
        return None if place is None else self.rows[place]

    def config(self, number: int) -> QuantConfig | None:
        """Return the configuration of a trial; number 0 is the fp32 model."""
        if number == 0 and self.baseline is not None:
            return self.baseline.config
        row = self.row(number)
        return None if row is None else row.trial.config

    def difference(self, first: int, second: int) -> list[Change]:
        """Return the ops that the second trial runs differently from the first."""
        before, after = self.config(first), self.config(second)
        if before is None or after is None:
            return []
        return self.picks.changes(self.picks.code(before), self.picks.code(after))

    def update(self, snapshot: Snapshot) -> None:
        """Add what is new in a later reading of the same file."""
        earlier, self.snapshot = self.snapshot, snapshot
        if snapshot.runs != earlier.runs:
            self.judge = self._new_judge()
            self._unjudged, self.rows, self._index, self._order, self.picks = (
                [],
                [],
                {},
                [],
                TrialChoices(self.picks.ops),
            )
        if snapshot.baseline is not None and snapshot.baseline.score != self.judge.baseline:
            self.judge.begin(snapshot.baseline)
        for place, trial in enumerate(snapshot.trials):
            if place >= len(self._unjudged):
                self._add(trial)
            elif trial is not self._unjudged[place]:  # a figure was measured
                self._unjudged[place] = trial
                self.judge.add(trial)
        if snapshot.notes.get(CONFIRMED) is not earlier.notes.get(CONFIRMED) or not self.judge.confirmations:
            self.judge.confirm(confirmations(snapshot.notes, self.criterion), is_required(snapshot.notes))
        self.rows = [self._judged(row) for row in self.rows]
        self.version += 1

    def _add(self, trial: Trial) -> None:
        row = len(self.rows)
        judged = self.judge.add(trial)
        self.picks.add(trial.config)
        quantized = int(self.picks.quantized[self.picks.rows[row]].sum())
        self._unjudged.append(trial)
        self._index[trial.number] = row
        self.rows.append(TrialRow(judged, quantized, judged.config.counts[FP32], None, 0, ""))
        bisect.insort(self._order, (trial.number, row))
        place = bisect.bisect_left(self._order, (trial.number, row))
        # With several workers a trial may end before one with a lower number, which may be its origin.
        for later in range(place, min(place + LOOK_BACK + 1, len(self._order))):
            self._find_origin(later)

    def _find_origin(self, place: int) -> None:
        """Set the trial that another one was derived from, given its place in the order of numbers."""
        row = self._order[place][1]
        earlier = [item[1] for item in self._order[max(0, place - LOOK_BACK) : place]]
        origin, current = self.picks.origin(row, earlier), self.rows[row]
        changes = [] if origin is None else self.picks.changes(self.picks.rows[origin], self.picks.rows[row])
        self.rows[row] = TrialRow(
            current.trial,
            current.quantized,
            current.fp32,
            None if origin is None else self._unjudged[origin].number,
            len(changes),
            "" if origin is None else describe_changes(changes),
        )

    def _judged(self, row: TrialRow) -> TrialRow:
        """Return a row with the current verdict of the judge."""
        trial = self.judge.judged(row.trial.number)
        if trial is row.trial:
            return row
        return TrialRow(trial, row.quantized, row.fp32, row.origin, row.changed, row.changes)

    def _new_judge(self) -> Judge:
        judge = Judge.from_settings(self.snapshot.run.settings, TuningSpace(self.snapshot.header.ops))
        judge.begin(self.snapshot.baseline)
        return judge


class FollowedRun:
    """Follow the snapshot of a run. Several threads may use it.

    Attributes:
        path: the folder, or the file itself.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._reader = SnapshotReader(self.path)
        self._data: RunData | None = None
        self._problem = ""
        self._lock = threading.Lock()

    @property
    def data(self) -> RunData | None:
        """The run as it was read last; None if it was not read yet, or there is nothing to read."""
        return self._data

    @property
    def problem(self) -> str:
        """Why nothing can be read, as long as there is no data."""
        return self._problem

    def poll(self) -> RunData | None:
        """Return what is known now; None as long as there is nothing."""
        with self._lock:
            try:
                snapshot = self._reader.poll()
                self._problem = ""
            except QuaverError as error:
                self._problem = str(error)
            else:
                if snapshot is None:
                    self._data = None
                elif self._data is None or self._data.snapshot.header is not snapshot.header:
                    self._data = RunData(snapshot)
                elif self._reader.changed:
                    self._data.update(snapshot)
            if self._data is not None:
                self._update_state(self._data)
            return self._data

    def _update_state(self, data: RunData) -> None:
        """Find out whether a process still writes the run."""
        file = self.path / FILE_NAME if self.path.is_dir() else self.path
        if self._problem:
            state = RunState.UNREADABLE
        elif data.ended:
            state = RunState.ENDED
        else:
            state = RunState.RUNNING if is_being_written(file) else RunState.KILLED
        if (state, self._problem) != (data.state, data.problem):
            data.state, data.problem = state, self._problem
            data.version += 1
