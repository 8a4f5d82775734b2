"""A trial that was dispatched and has no score yet."""

from __future__ import annotations

import time
from collections.abc import Callable

from quaver.adapters import Model
from quaver.engine.executors.base import Evaluation
from quaver.ops import QuantConfig
from quaver.scores import Score


class PendingTrial:
    """A configuration that waits for its score; number 0 is the fp32 model, which is scored first.

    Attributes:
        number: the number of the trial.
        config: how each op runs.
    """

    def __init__(self, number: int, config: QuantConfig, build: Callable[[], Model]) -> None:
        self.number, self.config = number, config
        self._build = build
        self._model: Model | None = None
        self._start = self._built = time.monotonic()

    @property
    def model(self) -> Model:
        """Return the model to score; the first call builds it."""
        if self._model is None:
            self._start = time.monotonic()
            self._model = self._build()
            self._built = time.monotonic()
        return self._model

    def scored(self, score: Score, end: float, seconds: float | None) -> Evaluation:
        """Return the evaluation that a caller of `ask` and `tell` made.

        Args:
            score: the score.
            end: when it was told, by the monotonic clock.
            seconds: the time spent in eval_func; that since the model was built if None.
        """
        model = self.model
        digest, size = model.sha256, model.size
        other_seconds = self._built - self._start + time.monotonic() - end
        return Evaluation(score, end - self._built if seconds is None else seconds, other_seconds, digest, size)

    def failed(self, error: str) -> Evaluation:
        """Return the evaluation of a trial that a caller of `ask` and `tell` could not score."""
        seconds = time.monotonic() - self._built
        return Evaluation(seconds=seconds, build_seconds=self._built - self._start, error=error)

    def close(self) -> None:
        """Close the model."""
        if self._model is not None:
            self._model.close()

    def __repr__(self) -> str:
        return f"PendingTrial({self.number}, {self.config!r})"
