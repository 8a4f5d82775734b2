"""Metrics of embeddings: recall among the nearest neighbours."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from quaver.adapters import Model
from quaver.errors import EvaluationError, SettingsError
from quaver.metrics.inference import Data, LabelData, SampleData
from quaver.metrics.metric import Metric, Scores
from quaver.types import Array


def recall_at_k(
    data: SampleData,
    labels: LabelData = None,
    *,
    k: int = 1,
    gallery: tuple[SampleData, LabelData] | None = None,
    output: int = 0,
) -> Metric:
    """Score 1 for each sample with its label among the `k` nearest other samples, by cosine similarity.

    Args:
        data: query samples, as for `top1`.
        labels: one for each query.
        k: number of neighbours.
        gallery: samples and labels to search; None searches all other samples of `data`.
        output: index of the output that is the embedding.
    """
    if k < 1:
        raise SettingsError(f"`k` must be at least 1, not {k!r}")
    return _Recall(k, Data(data, labels), None if gallery is None else Data(*gallery), output)


class _Recall(Metric):
    """Recall needs all embeddings before the first score, so it never stops early."""

    def __init__(self, k: int, data: Data, gallery: Data | None, output: int) -> None:
        super().__init__(f"recall@{k}", data, output)
        self._k, self._gallery = k, gallery

    def __call__(self, model: Model) -> Iterator[dict[str, Scores]]:
        """Yield the scores of all samples at once."""
        queries, wanted = self._embedded(model, self._data)
        gallery, gallery_labels = (queries, wanted) if self._gallery is None else self._embedded(model, self._gallery)
        if self._k >= len(gallery) + (self._gallery is not None):
            raise EvaluationError(f"{self.name}: there are only {len(gallery)} samples to search")
        scores = np.empty(len(queries))
        for first in range(0, len(queries), 512):
            near = queries[first : first + 512] @ gallery.T
            if self._gallery is None:  # a sample is not its own neighbour
                rows = np.arange(len(near))
                near[rows, rows + first] = -np.inf
            nearest = np.argpartition(-near, self._k - 1, axis=1)[:, : self._k]
            scores[first : first + 512] = (gallery_labels[nearest] == wanted[first : first + 512, None]).any(axis=1)
        yield {self.name: scores}

    def _embedded(self, model: Model, data: Data) -> tuple[Array, Array]:
        parts, labels = [], []
        for batch in data.run(model):
            rows = self._chosen(batch).reshape(batch.size, -1).astype(np.float64)
            parts.append(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-30))
            labels.append(np.asarray(batch.labels).reshape(-1))
        if not parts:
            raise EvaluationError(f"{self.name}: there are no samples")
        return np.concatenate(parts), np.concatenate(labels)
