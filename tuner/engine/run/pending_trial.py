"""A trial between being asked for and being told."""

from __future__ import annotations

import time
from collections.abc import Callable

from quaver.adapters import Model
from quaver.engine.executors.base import Outcome, State
from quaver.ops import QuantConfig
from quaver.scores import Score
from quaver.trial import Trial, TrialState


class PendingTrial:
    """A configuration that waits for its score; number 0 is the fp32 model, which is scored first.

    Attributes:
        number: of the trial it becomes.
        config: how each op runs.
    """

    def __init__(self, number: int, config: QuantConfig, build: Callable[[], Model]) -> None:
        self.number, self.config = number, config
        self._build = build
        self._model: Model | None = None
        self.begun = self.built = time.monotonic()

    @property
    def model(self) -> Model:
        """The model to score, built when it is first asked for."""
        if self._model is None:
            self.begun = time.monotonic()
            self._model = self._build()
            self.built = time.monotonic()
        return self._model

    def scored(self, score: Score, done: float, seconds: float | None) -> Trial:
        """The trial it becomes with a score, which was there at `done`; `seconds` are those of eval_func, if given."""
        model = self.model
        return Trial(
            self.number,
            self.config,
            state_of(score),
            score.value,
            model_hash=model.sha256,
            model_size=model.size,
            seconds=done - self.built if seconds is None else seconds,
            build_seconds=self.built - self.begun + time.monotonic() - done,
            metrics=score.metrics,
            samples=score.samples,
        )

    def failed(self, error: str) -> Trial:
        """The trial it becomes without a score."""
        spent = self.built - self.begun, time.monotonic() - self.built
        return Trial(self.number, self.config, TrialState.FAILED, build_seconds=spent[0], seconds=spent[1], error=error)

    def carried_out(self, outcome: Outcome) -> Trial:
        """The trial that an executor made of it."""
        score = outcome.score if outcome.state is State.DONE else None
        return Trial(
            self.number,
            self.config,
            TrialState.FAILED if score is None else state_of(score),
            None if score is None else score.value,
            model_hash=outcome.model_hash,
            model_size=outcome.model_size,
            seconds=outcome.seconds,
            build_seconds=outcome.build_seconds,
            error=outcome.error if score is None else None,
            worker=outcome.worker,
            started=outcome.started,
            metrics={} if score is None else score.metrics,
            samples={} if score is None else score.samples,
        )

    def close(self) -> None:
        """Let go of the model."""
        if self._model is not None:
            self._model.close()

    def __repr__(self) -> str:
        return f"PendingTrial({self.number}, {self.config!r})"


def state_of(score: Score) -> TrialState:
    """Whether all samples were seen."""
    return TrialState.STOPPED if score.stopped else TrialState.COMPLETE
