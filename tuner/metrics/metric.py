"""What a metric is: an `eval_func` that knows its data, its name and which direction is better."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quaver.adapters import Model
from quaver.errors import EvaluationError
from quaver.metrics.inference import Batch, Data
from quaver.types import Array, Feed

Scores = NDArray[np.float64]


class Metric(ABC):
    """A ready-made `eval_func`. It can be sent to other processes, and called as often as one likes.

    Attributes:
        name: what its score is called in tables and limits.
        higher_is_better: False if it is an error.
    """

    def __init__(self, name: str, data: Data, output: int = 0, higher_is_better: bool = True) -> None:
        self.name, self.higher_is_better = name, higher_is_better
        self._data, self._output = data, output

    @abstractmethod
    def __call__(self, model: Model) -> Any:
        """Score a model."""

    def sample(self, model: Model) -> Feed:
        """A batch of the data, to time a model on."""
        return self._data.first(model)

    @property
    def sample_scores(self) -> int | None:
        """Return how many scores of samples an evaluation gives, if that can be told before one is made."""
        return None

    def _chosen(self, batch: Batch) -> Array:
        """The output that is looked at."""
        if self._output >= len(batch.outputs):
            raise EvaluationError(
                f"{self.name} looks at output {self._output}, and the model has {len(batch.outputs)}: give `output=`"
            )
        return batch.outputs[self._output]

    def __repr__(self) -> str:
        return f"<metric {self.name}>"


class SampleMetric(Metric):
    """A metric with a score for each sample: a generator, whose evaluation may be stopped early."""

    @property
    def sample_scores(self) -> int | None:
        """Return how many samples there are, if that can be told before they are run: each has a score."""
        return self._data.count

    def __call__(self, model: Model) -> Iterator[dict[str, Scores]]:
        """The scores of the samples, batch by batch."""
        for batch in self._data.run(model):
            scores = np.asarray(self.scores(self._chosen(batch), batch.labels), dtype=np.float64)
            if scores.shape != (batch.size,):
                raise EvaluationError(
                    f"{self.name}: an output of shape {self._chosen(batch).shape} gives no score for each of "
                    f"{batch.size} samples. Is it another output (`output=`), or is the batch not its first axis?"
                )
            yield {self.name: scores}

    @abstractmethod
    def scores(self, output: Array, labels: Any) -> Any:
        """The score of each sample of a batch."""


class SetMetric(Metric):
    """A metric of the set as a whole: one number, which is the mean of nothing. It cannot be stopped or be sure."""

    def __call__(self, model: Model) -> dict[str, float]:
        """The score of all samples together."""
        found = [(self._chosen(batch), batch.labels) for batch in self._data.run(model)]
        if not found:
            raise EvaluationError(f"{self.name}: there are no samples")
        return {self.name: float(self.score(found))}

    @abstractmethod
    def score(self, batches: list[tuple[Array, Any]]) -> float:
        """The score of all batches, each an output and its labels."""
