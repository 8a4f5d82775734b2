"""What a run measures of trials that meet the criterion, so that the best by objective can be named."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace

from quaver.adapters import Adapter, Model
from quaver.engine.event_base import Stage
from quaver.engine.events import StageStarted
from quaver.engine.observers import Observer
from quaver.engine.run.crashes import last_step
from quaver.engine.scoring.judge import Judge
from quaver.engine.timing import latency
from quaver.engine.timing.float_baseline import FloatBaseline
from quaver.engine.timing.objective import OBJECTIVES, Latency, Objective, compare, recorded_name
from quaver.history import History
from quaver.space import TuningSpace
from quaver.trial import Trial
from quaver.types import PlainDict

# What takes so many times the smallest latency at most is measured again, and no more than so many trials of it.
FACTOR = 1.10
MOST = 5
# Figures that change may bring forward a trial that was not among them: they are looked for so often.
TIMES = 3
# The name of the note that says which trials were compared.
NOTE = "finalists"


def finalists(judge: Judge) -> list[Trial]:
    """The trials to measure again, the best so far first; none where nothing is to be decided."""
    known = sorted(
        (trial for trial in judge.contenders if judge.objective.known(trial)),
        key=lambda trial: (judge.objective.value(trial), trial.number),
    )
    near = [trial for trial in known if judge.objective.value(trial) <= FACTOR * judge.objective.value(known[0])]
    found = list(dict.fromkeys([trial for trial in known if trial is judge.best] + near))
    return found[:MOST] if len(found) > 1 else []


def least_seconds(judge: Judge) -> float:
    """About what it takes to measure the finalists again, with as few runs as can be."""
    found, runs = finalists(judge), latency.ROUNDS[0] + 1
    inferences = sum(runs * trial.measured.get("latency_ms", 0.0) / 1e3 for trial in (*found, *found[:1]))
    return inferences + sum(trial.build_seconds for trial in found)


def usual_seconds(judge: Judge) -> float:
    """About what it takes with as many runs as are usual."""
    found = finalists(judge)
    return max(latency.SECONDS * (len(found) + 1), least_seconds(judge)) if found else 0.0


def undecided(judge: Judge, history: History) -> bool:
    """Whether there are finalists, and not those of an earlier run that were compared then."""
    return bool(finalists(judge)) and history.notes.get(NOTE) != _compared(judge, history)


def measure_again(
    judge: Judge, history: History, adapter: Adapter, reference: FloatBaseline, left: Callable[[], float]
) -> None:
    """Measure the finalists in turns with the float model, record it, and judge them by it.

    `left` tells how many seconds there are.
    """
    done: set[int] = set()
    for _ in range(TIMES):
        found = finalists(judge)
        if not found or found[0].number in done or left() < least_seconds(judge):
            break
        models = [adapter.assemble(trial.config) for trial in found]
        baseline = reference()
        taken = compare(models, baseline, adapter.timing_feed, latency.SECONDS * (len(found) + 1), left())
        for trial, figures in zip(found, taken, strict=True):
            judge.add(history.measure(trial.number, figures))
        done.update(trial.number for trial in found)
    if done:
        history.note(NOTE, _compared(judge, history))


def _compared(judge: Judge, history: History) -> PlainDict:
    """What the comparison rests on: it need not be made again as long as this is the same."""
    numbers = sorted(trial.number for trial in judge.contenders)
    return {"trials": numbers, "threads": history.run.settings.get("threads", 0)}


log = logging.getLogger(__name__)


class ObjectiveMeasurer:
    """Takes the figures of the objective, at once or when nothing else is under way."""

    def __init__(self, adapter: Adapter, history: History, judge: Judge, objective: Objective) -> None:
        self._adapter, self._history, self._judge, self._objective = adapter, history, judge, objective
        self._reference = FloatBaseline(adapter, history)
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
        feed = self._adapter.timing_feed if self._adapter.probe_samples else None
        try:
            figures = self._objective.measure(model, self._reference, feed) | self._objective.predict(trial.config)
            name = recorded_name(self._objective)
            if name not in OBJECTIVES and name not in figures:  # so that others can compare by it, too
                figures[name] = float(self._objective.value(replace(trial, measured={**trial.measured, **figures})))
        except Exception:  # the score was dearly bought; what is missing is only the figure to compare by
            log.exception("the objective could not be measured")
            return trial
        return self._history.measure(trial.number, figures) if figures else trial

    def defer(self, trial: Trial) -> None:
        """Measure a trial when nothing else is under way, if its objective is measured at all."""
        if self._objective.measured or recorded_name(self._objective) not in OBJECTIVES:
            self._waiting.append(trial.number)

    def measure_deferred(self) -> Iterator[Trial]:
        """Measure and judge what was put off, in the order asked."""
        waiting, self._waiting = sorted(self._waiting), []
        for trial in self._judge.trials:
            if trial.number in waiting:
                yield self._judge.add(self.measured(trial, self._adapter.assemble(trial.config)))

    def what_is_missing(self, space: TuningSpace) -> None:
        """Figures of the objective for trials of earlier runs that were not measured by it."""
        for trial in self._judge.trials:
            if self.wants(trial) and not self._objective.known(trial) and space.allows(trial.config):
                self._judge.add(self.measured(trial, self._adapter.assemble(trial.config)))

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

    def reserved_seconds(self, most: float) -> float:
        """Seconds to keep for measuring the best trials again, where no more than `most` will do."""
        if most == 0 or not self._undecided() or least_seconds(self._judge) > most:
            return 0.0
        return min(usual_seconds(self._judge), most)

    def close(self) -> None:
        """Let go of the float model."""
        self._reference.close()

    def _undecided(self) -> bool:
        """Whether the winner is to be found among trials that are about as fast as each other."""
        measurable = type(self._objective) is Latency and bool(self._adapter.probe_samples)
        return measurable and undecided(self._judge, self._history)
