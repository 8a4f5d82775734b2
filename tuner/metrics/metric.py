"""The base classes of metrics: an `eval_func` that knows its data, its name and which direction is better."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quaver.adapters import Model
from quaver.errors import EvaluationError
from quaver.metrics.inference import Batch, Data, LabelData
from quaver.types import Array, Feed

Scores = NDArray[np.float64]


class Metric(ABC):
    """A ready-made `eval_func`. It can be sent to other processes and called any number of times.

    Attributes:
        name: name of the score in tables and limits.
        higher_is_better: False if the score is an error.
    """

    def __init__(self, name: str, data: Data, output: int = 0, higher_is_better: bool = True) -> None:
        self.name, self.higher_is_better = name, higher_is_better
        self._data, self._output = data, output

    @abstractmethod
    def __call__(self, model: Model) -> Any:
        """Score a model."""

    def sample(self, model: Model) -> Feed:
        """Return one batch of the data, to time a model with."""
        return self._data.first(model)

    @property
    def sample_scores(self) -> int | None:
        """Return the number of per-sample scores of one evaluation if it is known in advance."""
        return None

    def _chosen(self, batch: Batch) -> Array:
        """Return the output that is scored."""
        if self._output >= len(batch.outputs):
            raise EvaluationError(
                f"{self.name} scores output {self._output}, but the model has only {len(batch.outputs)}: set `output=`"
            )
        return batch.outputs[self._output]

    def __repr__(self) -> str:
        return f"<metric {self.name}>"


class SampleMetric(Metric):
    """A metric with a score for each sample. It yields batches, so an evaluation can stop early."""

    @property
    def sample_scores(self) -> int | None:
        """Return the number of samples if it is known before they run; each has a score."""
        return self._data.count

    def __call__(self, model: Model) -> Iterator[dict[str, Scores]]:
        """Yield the scores of the samples, batch by batch."""
        for batch in self._data.run(model):
            scores = np.asarray(self.scores(self._chosen(batch), batch.labels), dtype=np.float64)
            if scores.shape != (batch.size,):
                raise EvaluationError(
                    f"{self.name}: an output of shape {self._chosen(batch).shape} gives no score for each of "
                    f"{batch.size} samples. Is it another output (`output=`), or is the batch not its first axis?"
                )
            yield {self.name: scores}

    @abstractmethod
    def scores(self, output: Array, labels: LabelData) -> Any:
        """Return the score of each sample of a batch."""


class SetMetric(Metric):
    """A metric of the set as a whole. It is one number and no mean, so there is no early stop and no confidence."""

    def __call__(self, model: Model) -> dict[str, float]:
        """Score all samples together."""
        batches = [(self._chosen(batch), batch.labels) for batch in self._data.run(model)]
        if not batches:
            raise EvaluationError(f"{self.name}: there are no samples")
        return {self.name: float(self.score(batches))}

    @abstractmethod
    def score(self, batches: list[tuple[Array, LabelData]]) -> float:
        """Return the score of all batches, each an output and its labels."""
