"""Who looks on while a run goes its way: the log file, the command line, the live page."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from quaver.trial import Trial

if TYPE_CHECKING:
    from quaver.api.result import TuneResult
    from quaver.diagnosis import Diagnosis

log = logging.getLogger(__name__)


class Observer:
    """Told what happens. Override what is of interest; nothing here may change the run."""

    def started(self, what: str) -> None:
        """A stage begins, in words."""

    def planned(self, strategy: str, ops: int, evaluations: int | None) -> None:
        """Tuning of so many ops begins; the strategy may use so many evaluations at most, None if it has no end."""

    def progress(self, what: str, done: int, total: int | None) -> None:
        """A long stage has come this far; `total` is None when nobody knows the end."""

    def baseline(self, trial: Trial) -> None:
        """The fp32 model has its score."""

    def evaluating(self, number: int, best: Trial | None) -> None:
        """Trial `number` is about to be scored."""

    def slow(self, number: int, seconds: float, usual: float) -> None:
        """An evaluation takes far longer than the baseline's did. It may hang."""

    def tried(self, trial: Trial, best: Trial | None) -> None:
        """A trial is over and recorded."""

    def diagnosed(self, diagnosis: Diagnosis) -> None:
        """The quantized model was looked into; the tables are in the workspace."""

    def finished(self, result: TuneResult) -> None:
        """The run is over."""


def plan(strategy: str, ops: int, evaluations: int | None) -> str:
    """What `planned` says, in words."""
    most = "as many evaluations as the budget allows" if evaluations is None else f"at most {evaluations:,} evaluations"
    return f"tuning {ops} ops with strategy {strategy}: {most}, and the baseline"


class Observers(Observer):
    """Several of them. One that fails is reported to the log; the run goes on."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers

    def _tell(self, event: str, *what: Any) -> None:
        for observer in self._observers:
            try:
                getattr(observer, event)(*what)
            except Exception:
                log.exception("%s.%s failed; the run goes on", type(observer).__name__, event)

    def started(self, what: str) -> None:
        self._tell("started", what)

    def planned(self, strategy: str, ops: int, evaluations: int | None) -> None:
        self._tell("planned", strategy, ops, evaluations)

    def progress(self, what: str, done: int, total: int | None) -> None:
        self._tell("progress", what, done, total)

    def baseline(self, trial: Trial) -> None:
        self._tell("baseline", trial)

    def evaluating(self, number: int, best: Trial | None) -> None:
        self._tell("evaluating", number, best)

    def slow(self, number: int, seconds: float, usual: float) -> None:
        self._tell("slow", number, seconds, usual)

    def tried(self, trial: Trial, best: Trial | None) -> None:
        self._tell("tried", trial, best)

    def diagnosed(self, diagnosis: Diagnosis) -> None:
        self._tell("diagnosed", diagnosis)

    def finished(self, result: TuneResult) -> None:
        self._tell("finished", result)
