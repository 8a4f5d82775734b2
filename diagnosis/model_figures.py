"""The user's own figures of a whole model, from the outputs of the float and of the quantized one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from quaver.diagnosis.differences import Metric
from quaver.quantization import Array


class ModelFigures:
    """Functions of both models' outputs, called for each sample; each figure is the mean of all."""

    def __init__(self, metrics: Mapping[str, Metric] | None = None) -> None:
        self._metrics = dict(metrics or {})
        self._sums = dict.fromkeys(self._metrics, 0.0)
        self._samples = 0

    def add(self, before: Sequence[Array], after: Sequence[Array], samples: int) -> None:
        """Take in the outputs of a batch."""
        self._samples += samples
        for index in range(samples if self._metrics else 0):
            pair = _sample(before, index, samples), _sample(after, index, samples)
            for name, metric in self._metrics.items():
                self._sums[name] += float(metric(*pair))

    def figures(self) -> dict[str, float]:
        """By name."""
        return {name: total / self._samples if self._samples else math.nan for name, total in self._sums.items()}


def _sample(outputs: Sequence[Array], index: int, samples: int) -> list[Array]:
    """The outputs of one sample, as a batch of one; what has no batch axis stays whole."""
    return [array[index : index + 1] if array.ndim and len(array) == samples else array for array in outputs]
