"""Scores of embeddings: does one find what belongs together?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from quaver.adapters import Model
from quaver.errors import EvaluationError, SettingsError
from quaver.metrics.inference import Data
from quaver.metrics.metric import Metric, Scores
from quaver.types import Array


def recall_at_k(
    data: Any, labels: Any = None, *, k: int = 1, gallery: tuple[Any, Any] | None = None, output: int = 0
) -> Metric:
    """Whether one of the `k` nearest others, by the cosine of their embeddings, has the same label.

    Args:
        data: samples to look for, as for `top1`.
        labels: what each belongs to.
        k: how many of the nearest count.
        gallery: samples and labels to look among; None looks among all other samples of `data`.
        output: which output of the model is the embedding.
    """
    if k < 1:
        raise SettingsError(f"`k` must be at least 1, not {k!r}")
    return _Recall(k, Data(data, labels), None if gallery is None else Data(*gallery), output)


class _Recall(Metric):
    """All embeddings must be there before the first score is: nothing can be stopped early."""

    def __init__(self, k: int, data: Data, gallery: Data | None, output: int) -> None:
        super().__init__(f"recall@{k}", data, output)
        self._k, self._gallery = k, gallery

    def __call__(self, model: Model) -> Iterator[dict[str, Scores]]:
        """The score of each sample, all at once."""
        queries, wanted = self._embedded(model, self._data)
        others, theirs = (queries, wanted) if self._gallery is None else self._embedded(model, self._gallery)
        if self._k >= len(others) + (self._gallery is not None):
            raise EvaluationError(f"{self.name}: there are only {len(others)} samples to look among")
        found = np.empty(len(queries))
        for first in range(0, len(queries), 512):
            near = queries[first : first + 512] @ others.T
            if self._gallery is None:  # not itself
                rows = np.arange(len(near))
                near[rows, rows + first] = -np.inf
            nearest = np.argpartition(-near, self._k - 1, axis=1)[:, : self._k]
            found[first : first + 512] = (theirs[nearest] == wanted[first : first + 512, None]).any(axis=1)
        yield {self.name: found}

    def _embedded(self, model: Model, data: Data) -> tuple[Array, Array]:
        parts, labels = [], []
        for batch in data.run(model):
            rows = self._chosen(batch).reshape(batch.size, -1).astype(np.float64)
            parts.append(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-30))
            labels.append(np.asarray(batch.labels).reshape(-1))
        if not parts:
            raise EvaluationError(f"{self.name}: there are no samples")
        return np.concatenate(parts), np.concatenate(labels)
