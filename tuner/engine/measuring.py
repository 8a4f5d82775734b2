"""What a run measures of trials that meet the criterion, so that the best by objective can be named."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace

from quaver.adapters import Adapter, Model
from quaver.engine.crashes import last_step
from quaver.engine.events import Observer, Stage, StageStarted
from quaver.engine.finalists import finalists, least_seconds, measure_again, undecided, usual_seconds
from quaver.engine.judge import Judge
from quaver.engine.objective import OBJECTIVES, Latency, Objective, recorded_name
from quaver.engine.reference import Reference
from quaver.history import Storage
from quaver.space import TuningSpace
from quaver.trial import Trial

log = logging.getLogger(__name__)


class Measuring:
    """Takes the figures of the objective, at once or when nothing else is under way."""

    def __init__(self, adapter: Adapter, history: Storage, judge: Judge, objective: Objective) -> None:
        self._adapter, self._history, self._judge, self._objective = adapter, history, judge, objective
        self._reference = Reference(adapter, history)
        self._waiting: list[int] = []

    def wants(self, trial: Trial) -> bool:
        """Whether the objective's figures are taken of a trial."""
        return trial.met or (self._objective.needs_all and not trial.failed)

    def measured(self, trial: Trial, model: Model) -> Trial:
        """A trial with the figures of the objective, which are recorded."""
        name = f"measuring the {self._objective.name} of trial {trial.number} ({trial.config.fingerprint})"
        if not self._objective.measured:
            return self._with_figures(trial, model)
        with last_step(self._history, name, "the trial is compared without this figure") as may_run:
            return self._with_figures(trial, model) if may_run else trial

    def _with_figures(self, trial: Trial, model: Model) -> Trial:
        feed = self._adapter.timing_feed if self._adapter.kept else None
        try:
            figures = self._objective.measure(model, self._reference, feed) | self._objective.predict(trial.config)
            name = recorded_name(self._objective)
            if name not in OBJECTIVES and name not in figures:  # so that others can compare by it, too
                figures[name] = float(self._objective.value(replace(trial, measured={**trial.measured, **figures})))
        except Exception:  # the score was dearly bought; what is missing is only the figure to compare by
            log.exception("the objective could not be measured")
            return trial
        return self._history.measure(trial.number, figures) if figures else trial

    def later(self, trial: Trial) -> None:
        """Measure a trial when nothing else is under way, if its objective is measured at all."""
        if self._objective.measured or recorded_name(self._objective) not in OBJECTIVES:
            self._waiting.append(trial.number)

    def what_waits(self) -> Iterator[Trial]:
        """Measure and judge what was put off, in the order asked."""
        waiting, self._waiting = sorted(self._waiting), []
        for trial in self._judge.trials:
            if trial.number in waiting:
                yield self._judge.add(self.measured(trial, self._adapter.rebuild(trial.config)))

    def what_is_missing(self, space: TuningSpace) -> None:
        """Figures of the objective for trials of earlier runs that were not measured by it."""
        for trial in self._judge.trials:
            if self.wants(trial) and not self._objective.known(trial) and space.allows(trial.config):
                self._judge.add(self.measured(trial, self._adapter.rebuild(trial.config)))

    def decide(self, left: Callable[[], float], observer: Observer) -> None:
        """Measure the best trials again, if there is time for it."""
        if not self._undecided() or least_seconds(self._judge) > left():
            return
        numbers = " ".join(str(trial.number) for trial in finalists(self._judge))
        with last_step(self._history, f"measuring trials {numbers} again", "earlier figures decide") as may_run:
            if not may_run:
                return
            observer(StageStarted(Stage.FINALISTS))
            try:
                measure_again(self._judge, self._history, self._adapter, self._reference, left)
            except Exception:  # the figures that there are decide
                log.exception("the best trials could not be measured again")

    def kept_back(self, most: float) -> float:
        """Seconds to keep for measuring the best trials again, where no more than `most` will do."""
        if most == 0 or not self._undecided() or least_seconds(self._judge) > most:
            return 0.0
        return min(usual_seconds(self._judge), most)

    def close(self) -> None:
        """Let go of the float model."""
        self._reference.close()

    def _undecided(self) -> bool:
        """Whether the winner is to be found among trials that are about as fast as each other."""
        measurable = type(self._objective) is Latency and bool(self._adapter.kept)
        return measurable and undecided(self._judge, self._history)
