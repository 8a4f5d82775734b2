"""Measure the figures of an objective for trials, and the float model that they are compared with."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace

from quaver.adapters import Adapter, Model, abilities
from quaver.adapters.data import count_samples
from quaver.engine.event_base import Stage
from quaver.engine.events import StageStarted
from quaver.engine.observers import Observer
from quaver.engine.run.crashes import last_step
from quaver.engine.scoring.judge import Judge
from quaver.engine.timing.finalists import finalists, is_undecided, least_seconds, measure_again, usual_seconds
from quaver.engine.timing.latency import as_deployed, measure
from quaver.engine.timing.objective import Objective
from quaver.history import History
from quaver.space import TuningSpace
from quaver.trial import Trial

log = logging.getLogger(__name__)


class FloatBaseline:
    """The faster of two float models: the one the user gave, and the optimized one. One model if nothing was rewritten.

    The latencies of both are recorded with the baseline: `latency_ms` and `latency_spread` of the optimized model,
    `as_given_ms` of the user's if that is another, and `batch` and `threads` of all latencies.
    """

    def __init__(self, adapter: Adapter, history: History) -> None:
        self._adapter, self._history = adapter, history
        self._model: Model | None = None

    def __call__(self) -> Model:
        """Return the model; it is built and measured at the first call."""
        if self._model is None:
            self._model = self._faster()
        return self._model

    def close(self) -> None:
        """Release the model."""
        self._model = None

    def _faster(self) -> Model:
        models = [as_deployed(self._adapter.assemble(None))]
        if not self._adapter.probe_samples:
            return models[0]
        if abilities.rewrites(self._adapter):
            models.append(as_deployed(abilities.build_unmodified(self._adapter)))
        feed = self._adapter.timing_feed
        latencies = measure(models, feed)
        figures = {
            "latency_ms": 1e3 * latencies[0].seconds,
            "latency_spread": latencies[0].spread,
            "batch": float(count_samples(feed)),
            "threads": float(models[0].threads),
        }
        if len(latencies) > 1:
            figures["as_given_ms"] = 1e3 * latencies[1].seconds
        self._history.measure(0, figures)
        return models[-1] if latencies[-1].seconds < latencies[0].seconds else models[0]


class ObjectiveMeasurer:
    """Measures the figures of the objective, at once or when nothing else is running."""

    def __init__(self, adapter: Adapter, history: History, judge: Judge, objective: Objective) -> None:
        self._adapter, self._history, self._judge, self._objective = adapter, history, judge, objective
        self._float_model = FloatBaseline(adapter, history)
        self._deferred: list[int] = []

    def wants(self, trial: Trial) -> bool:
        """Return True if the objective's figures are measured of this trial."""
        return trial.met or (self._objective.measures_every_trial and not trial.failed)

    def measured(self, trial: Trial, model: Model) -> Trial:
        """Measure the figures of a trial, record them, and return the trial with them."""
        name = f"measuring the {self._objective.name} of trial {trial.number} ({trial.config.fingerprint})"
        if not self._objective.measured:
            return self._with_figures(trial, model)
        with last_step(self._history, name, "the trial is compared without this figure") as may_run:
            return self._with_figures(trial, model) if may_run else trial

    def _with_figures(self, trial: Trial, model: Model) -> Trial:
        objective = self._objective
        feed = self._adapter.timing_feed if self._adapter.probe_samples else None
        try:
            figures = objective.measure(model, self._float_model, feed) | objective.predict(trial.config)
            name = objective.recorded_name
            if not objective.is_registered and name not in figures:  # so that others can compare trials by it
                figures[name] = float(objective.value(replace(trial, measured={**trial.measured, **figures})))
        except Exception:  # the evaluation was expensive: keep its score, only the figure to compare by is missing
            log.exception("the objective could not be measured")
            return trial
        return self._history.measure(trial.number, figures) if figures else trial

    def defer(self, trial: Trial) -> None:
        """Measure a trial when nothing else is running, if its objective is measured at all."""
        if self._objective.measured or not self._objective.is_registered:
            self._deferred.append(trial.number)

    def measure_deferred(self) -> Iterator[Trial]:
        """Measure and judge the deferred trials, in order of their numbers."""
        deferred, self._deferred = sorted(self._deferred), []
        for trial in self._judge.trials:
            if trial.number in deferred:
                yield self._judge.add(self.measured(trial, self._adapter.assemble(trial.config)))

    def measure_missing(self, space: TuningSpace) -> None:
        """Measure trials of earlier runs that lack the figure of this objective."""
        for trial in self._judge.trials:
            if self.wants(trial) and not self._objective.known(trial) and space.allows(trial.config):
                self._judge.add(self.measured(trial, self._adapter.assemble(trial.config)))

    def decide(self, seconds_left: Callable[[], float], observer: Observer) -> None:
        """Measure the best trials again, if there is time for it."""
        if not self._is_undecided() or least_seconds(self._judge) > seconds_left():
            return
        numbers = " ".join(str(trial.number) for trial in finalists(self._judge))
        with last_step(self._history, f"measuring trials {numbers} again", "earlier figures decide") as may_run:
            if not may_run:
                return
            observer(StageStarted(Stage.FINALISTS))
            try:
                measure_again(self._judge, self._history, self._adapter, self._float_model, seconds_left)
            except Exception:  # the figures that there are decide
                log.exception("the best trials could not be measured again")

    def reserved_seconds(self, limit: float) -> float:
        """Return the seconds to reserve for measuring the best trials again: at most `limit`, 0 if that is too few."""
        if limit == 0 or not self._is_undecided() or least_seconds(self._judge) > limit:
            return 0.0
        return min(usual_seconds(self._judge), limit)

    def close(self) -> None:
        """Release the float model."""
        self._float_model.close()

    def _is_undecided(self) -> bool:
        """Return True if several trials are about as fast, and samples are at hand to compare them with."""
        objective = self._objective
        # The figure of a user's own class is recorded once, and is not derived from the latencies measured again.
        can_measure = objective.has_finalists and objective.is_registered and bool(self._adapter.probe_samples)
        return can_measure and is_undecided(self._judge, self._history)
