"""What a run needs of whoever remembers it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from quaver.history.records.header import Header, Run
from quaver.ops import QuantConfig
from quaver.trial import Trial
from quaver.types import PlainMapping


class Storage(ABC):
    """Everything a run records, and all that was recorded before. `History`, a file, is the one that ships.

    The contract, for another one (it is opened in `quaver.api.workspace`):

    - What a method has recorded survives a crash once it returns. If that is not possible it raises `HistoryError`,
      and nothing of it is seen later.
    - `begin` comes first and once, then `start_run` for every `fit`, then trials and notes. Numbers of trials are given
      by the caller, each once; number 0, the baseline, may be recorded again, and the last one counts.
    - Verdicts (loss, met) are not recorded: a criterion may change. Everything else of a trial comes back as it was.
    - Data is plain: None, bool, int, float, str, bytes, and lists, tuples and dicts of them. What is not is refused.
    - There is one writer at a time, and it is used by one thread.

    Attributes:
        path: where it is kept, as users see it.
    """

    path: Path

    @property
    @abstractmethod
    def header(self) -> Header | None:
        """What the trials belong to; None until `begin`."""

    @property
    @abstractmethod
    def runs(self) -> tuple[Run, ...]:
        """Every `fit` so far, the first one first."""

    @property
    def run(self) -> Run:
        """The latest run; one of number 0 that says nothing as long as there is none."""
        return self.runs[-1] if self.runs else Run(0, "", {}, {})

    def run_of(self, number: int) -> Run:
        """Return the run that recorded the trial of that number; the latest one if that is not recorded."""
        return self.run

    @property
    @abstractmethod
    def baseline(self) -> Trial | None:
        """The fp32 model's trial, the last one recorded."""

    @property
    @abstractmethod
    def trials(self) -> Sequence[Trial]:
        """All trials but the baseline, in the order they were recorded, not judged. Not to be changed."""

    @property
    @abstractmethod
    def notes(self) -> PlainMapping:
        """Name -> plain data, the last of each name, with all that was added to it. Not to be changed."""

    @property
    @abstractmethod
    def next_number(self) -> int:
        """One more than the highest trial number so far."""

    @abstractmethod
    def begin(self, header: Header) -> None:
        """Record the header, once and before all else."""

    @abstractmethod
    def start_run(self, settings: PlainMapping, versions: Mapping[str, str], started: str | None = None) -> Run:
        """Record that a `fit` begins, new or resumed; the trials that follow are its own. `started` is now if None."""

    @abstractmethod
    def append(self, trial: Trial) -> None:
        """Record a trial; number 0 is the baseline."""

    @abstractmethod
    def begin_trial(self, number: int, config: QuantConfig) -> None:
        """Record that a trial is handed out. If the process ends before it is recorded, `crashes` counts it later."""

    @abstractmethod
    def drop_trial(self, number: int) -> None:
        """Take back `begin_trial`: the trial was given up for a reason that is not its own. Otherwise nothing."""

    @abstractmethod
    def crashes(self, config: QuantConfig) -> int:
        """How often the process ended while this configuration was tried."""

    @abstractmethod
    def begin_step(self, name: str) -> None:
        """Record that native work between trials begins, under its name. One step is under way at a time."""

    @abstractmethod
    def end_step(self) -> None:
        """Take back `begin_step`: the process survived the step. Otherwise nothing."""

    @abstractmethod
    def step_crashes(self, name: str) -> int:
        """Return how often the process ended during the step of that name."""

    @property
    @abstractmethod
    def crashed_steps(self) -> Mapping[str, int]:
        """Return how often the process ended during each step, by the sha256 of the step's name."""

    @abstractmethod
    def measure(self, number: int, figures: Mapping[str, float]) -> Trial:
        """Record figures that were taken of a trial, besides those it has; the trial with all of them."""

    @abstractmethod
    def note(self, name: str, data: Any) -> None:
        """Record named plain data, such as what a probe found; a later note of the same name replaces it."""

    @abstractmethod
    def extend_note(self, name: str, items: PlainMapping) -> None:
        """Add items to a note that is a dict, or begin one; a known key gets the new value. It costs no more."""

    @abstractmethod
    def find(self, config: QuantConfig) -> Trial | None:
        """The newest trial of this configuration, if it was tried; in constant time."""

    @abstractmethod
    def forget_trailing_failures(self, is_fatal: Callable[[QuantConfig], bool] = lambda config: False) -> None:
        """Let `find` no longer answer with the failed trials at the very end, so that they are tried again.

        Not those of configurations that ended the process more than `RETRIES` times, or that `is_fatal` names.
        """

    @abstractmethod
    def close(self) -> None:
        """Let go of it, for the next writer. More than once does no harm."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
