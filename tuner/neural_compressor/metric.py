"""Metrics of Neural Compressor that its examples import."""

from __future__ import annotations

from typing import Any

import numpy as np

from quaver.errors import SettingsError
from quaver.neural_compressor.absent import absent_names


class TensorflowTopK:
    """Count the samples whose label is among the k classes with the highest scores."""

    def __init__(self, k: int = 1) -> None:
        if not isinstance(k, int) or k < 1:
            raise SettingsError(f"k must be an integer of 1 or more, not {k!r}")
        self.k = k
        self.reset()

    def reset(self) -> None:
        """Forget all samples."""
        self.num_correct = self.num_sample = 0

    def update(self, preds: Any, labels: Any, sample_weight: Any = None) -> None:
        """Add the scores and labels of a batch."""
        if sample_weight is not None:
            raise SettingsError("TensorflowTopK takes no sample_weight: every sample counts the same")
        numbers = np.asarray(labels).astype(np.int64).reshape(-1)
        scores = np.asarray(preds).reshape(len(numbers), -1)
        own = np.take_along_axis(scores, numbers[:, None], axis=1)
        correct = ((scores > own).sum(axis=1) < self.k) & np.isfinite(own[:, 0])
        self.num_correct += int(correct.sum())
        self.num_sample += len(numbers)

    def result(self) -> float:
        """Return the part of the samples that are correct; 0 without samples."""
        return self.num_correct / self.num_sample if self.num_sample else 0.0


__getattr__ = absent_names(__name__)
