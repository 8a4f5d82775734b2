"""The content of a history.snapshot."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from quaver.errors import HistoryError
from quaver.formatting import number_ranges
from quaver.history.records.header import Header, Run
from quaver.trial import Trial
from quaver.types import PlainDict

FILE_NAME = "history.snapshot"


@dataclass(frozen=True)
class Snapshot:
    """The content of a history.snapshot. It is read-only and does not keep the file open.

    Attributes:
        path: the file.
        header: the model and its calibration.
        runs: every `fit` that recorded something, in order.
        trials: in the order they were recorded, without the baseline. They are not judged: `loss` and `met` have no
            meaning.
        baseline: the fp32 model's trial (number 0); None if the run ended before it.
        notes: name -> plain data: the last note of each name, with everything added to it.
        starts: for each run, how many trials were recorded before it.
        baseline_run: the number of the run that recorded the baseline.
        damage: a sentence about unreadable bytes; None if the file is whole.
    """

    path: Path
    header: Header
    runs: tuple[Run, ...] = ()
    trials: tuple[Trial, ...] = ()
    baseline: Trial | None = None
    notes: PlainDict = field(default_factory=dict)
    starts: tuple[int, ...] = ()
    baseline_run: int = 0
    damage: str | None = None

    @property
    def run(self) -> Run:
        """The latest run; an empty one of number 0 if the file ends before the record of its run."""
        return self.runs[-1] if self.runs else self._unrecorded

    def trial(self, number: int) -> Trial:
        """Return the trial of that number; 0 is the fp32 baseline."""
        if number == 0 and self.baseline is not None:
            return self.baseline
        if number not in self._places:
            numbers = [*([] if self.baseline is None else [0]), *self._places]
            raise HistoryError(f"{self.path} has no trial {number!r}; it has {number_ranges(numbers)}")
        return self.trials[self._places[number]]

    def run_of(self, number: int) -> Run:
        """Return the run that recorded the trial of that number."""
        baseline = self.trial(number) is self.baseline
        origin = self.baseline_run if baseline else bisect_right(self.starts, self._places[number])
        return self.runs[origin - 1] if origin else self._unrecorded

    @cached_property
    def _places(self) -> dict[int, int]:
        return {trial.number: index for index, trial in enumerate(self.trials)}

    @property
    def _unrecorded(self) -> Run:
        return Run(0, self.header.created, {}, {})
