"""Errors of one stream of tensors against another, in constant memory.

A difference is the quantized value minus the float value. All figures are over every element of every sample:

    mean_error          = mean(d)
    stddev              = sqrt(mean((d - mean_error)^2))
    max_abs_error       = max(|d|)
    mean_squared_error  = mean(d^2)
    sqnr                = 10 log10(sum(f^2) / sum(d^2)), in dB; infinite without any error
    cosine              = sum(f q) / sqrt(sum(f^2) sum(q^2))
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from quaver.affine import QuantizedTensor, as_float
from quaver.diagnosis.statistics.cells import TensorDifference
from quaver.types import Array

Metric = Callable[..., float]
"""A user's function of differences, or of the outputs of both models."""

TensorFunction = Callable[[Array, Array, Array | float, Array | int], float]
"""A user's function of a float tensor, a quantized tensor, its scale and its zero point."""

STATISTICS = (
    "num_elements", "stddev", "mean_error", "max_abs_error", "mean_squared_error", "sqnr", "cosine",
    "elements_per_sample", "mean_max_abs_error",
)  # fmt: skip


class TensorMetric:
    """A metric of both tensors. It gets the float tensor, the quantized one, its scale and its zero point.

    A tensor that is not stored in integers has a scale of 1 and a zero point of 0.
    """

    def __init__(self, function: TensorFunction) -> None:
        self._function = function

    def __call__(self, before: Array, after: Array | QuantizedTensor) -> float:
        """Return the figure of one batch."""
        if not isinstance(after, QuantizedTensor):
            return float(self._function(before, after, 1.0, 0))
        parameters = after.parameters
        return float(self._function(before, after.values, parameters.scale, parameters.zero_point))


class ErrorStatistics:
    """The errors of one op. `metrics` are the user's own functions of the differences."""

    def __init__(self, metrics: Mapping[str, Metric] | None = None) -> None:
        self.count = 0
        self.not_finite = 0  # values that are NaN or infinite and finite in the float model
        self._sum = self._noise = self._signal = self._cross = self._worst = self._worsts = 0.0
        self._samples = 0
        self._metrics = dict(metrics or {})
        self._measured = dict.fromkeys(self._metrics, 0.0)

    def add(self, before: Array, after: Array | QuantizedTensor, difference: TensorDifference, signal: float) -> None:
        """Add a float tensor, another form of it, their difference, and the sum of squares of the float tensor."""
        noise = float(difference.noise.sum())
        self.count += before.size
        self._noise += noise
        self._signal += signal
        self._cross += difference.cross
        self._sum += difference.total
        self._worst = float(np.maximum(self._worst, difference.worst))  # propagates NaN
        self._worsts += float(difference.sample_worst.sum())
        self._samples += len(difference.sample_worst)
        if not math.isfinite(noise) or self._metrics:
            real = as_float(after)
            if not math.isfinite(noise):
                self.not_finite += int(np.count_nonzero(np.isfinite(before) & ~np.isfinite(real)))
            for name, metric in self._metrics.items():
                value = metric(before, after) if isinstance(metric, TensorMetric) else metric(real - before)
                self._measured[name] += float(value) * before.size

    @property
    def mean_squared_error(self) -> float:
        """The mean of squared differences; NaN without any element."""
        return self._noise / self.count if self.count else math.nan

    @property
    def relative(self) -> float:
        """Squared error over squared signal; 0 without any error."""
        if not self._noise:
            return 0.0 if self.count else math.nan
        return self._noise / self._signal if self._signal else math.inf

    def figures(self) -> dict[str, float]:
        """Return all statistics by name, the user's metrics last. Without any element they are NaN."""
        if not self.count:
            return {"num_elements": 0.0} | dict.fromkeys([*STATISTICS[1:], *self._metrics], math.nan)
        mean, square = self._sum / self.count, self.mean_squared_error
        figures = {
            "num_elements": float(self.count),
            "stddev": math.sqrt(max(square - mean * mean, 0.0)) if math.isfinite(square) else math.nan,
            "mean_error": mean,
            "max_abs_error": self._worst,
            "mean_squared_error": square,
            "sqnr": self._sqnr(),
            "cosine": self._cosine(),
            "elements_per_sample": self.count / self._samples,
            "mean_max_abs_error": self._worsts / self._samples,
        }
        return figures | {name: total / self.count for name, total in self._measured.items()}

    def _sqnr(self) -> float:
        if not math.isfinite(self._noise) or not math.isfinite(self._signal):
            return math.nan
        if not self._noise:
            return math.inf
        return 10 * math.log10(self._signal / self._noise) if self._signal else -math.inf

    def _cosine(self) -> float:
        other = self._signal + 2 * self._cross + self._noise  # |f + d|^2
        length = math.sqrt(self._signal * other) if self._signal > 0 and other > 0 else math.nan
        return (self._signal + self._cross) / length if length else math.nan


class ModelFigures:
    """The user's functions of both models' outputs. Each is called per sample; the figure is the mean."""

    def __init__(self, metrics: Mapping[str, Metric] | None = None) -> None:
        self._metrics = dict(metrics or {})
        self._sums = dict.fromkeys(self._metrics, 0.0)
        self._samples = 0

    def add(self, before: Sequence[Array], after: Sequence[Array], samples: int) -> None:
        """Add the outputs of a batch."""
        self._samples += samples
        for index in range(samples if self._metrics else 0):
            pair = _sample(before, index, samples), _sample(after, index, samples)
            for name, metric in self._metrics.items():
                self._sums[name] += float(metric(*pair))

    def figures(self) -> dict[str, float]:
        """Return the figures by name."""
        return {name: total / self._samples if self._samples else math.nan for name, total in self._sums.items()}


def _sample(outputs: Sequence[Array], index: int, samples: int) -> list[Array]:
    """Return the outputs of one sample, as a batch of one. Arrays without a batch axis stay whole."""
    return [array[index : index + 1] if array.ndim and len(array) == samples else array for array in outputs]
