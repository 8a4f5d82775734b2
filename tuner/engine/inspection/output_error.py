"""The error of a configuration at the outputs of the model, compared with the float model."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from quaver.adapters import Adapter, abilities
from quaver.adapters.data import count_samples
from quaver.engine.inspection.output_metric import OutputMetric, PartError
from quaver.ops import QuantConfig
from quaver.types import Array, Feed

log = logging.getLogger(__name__)

# The largest error of the float model in parts, compared with the whole: quantized ops that matter have 1e-6 and more,
# and other roundings of float32 about 1e-12. Judgement.
MAX_PARTIAL_ERROR = 1e-7
# Errors on no more feeds than this are judged by the float outputs of as many feeds: those of all of them may not fit
# into memory. Judgement: enough to tell the parts of an output apart.
METRIC_FEEDS = 8

Outputs: TypeAlias = list[NDArray[np.float64]]
"""The numeric outputs of one feed."""


class OutputErrors:
    """Computes errors at the outputs on a few feeds; the outputs of the float model are computed once.

    `output_metric` says what the error is.

    Args:
        adapter: builds the models.
        last: the op whose output counts if no output of the model is numeric.
        feeds: the inputs.
    """

    def __init__(self, adapter: Adapter, last: str, feeds: Sequence[Feed]) -> None:
        self._adapter, self._last, self._feeds = adapter, last, feeds
        self._metrics: dict[int, OutputMetric] = {}
        self._partial: abilities.PartialRuns | None = None
        self._is_partial_checked = False

    def metric(self, count: int) -> OutputMetric:
        """Return the metric of errors on the first `count` feeds; the float model runs for it once."""
        feeds = self._feeds[:METRIC_FEEDS] if count <= METRIC_FEEDS else self._feeds
        if len(feeds) not in self._metrics:
            sizes = [count_samples(feed) for feed in feeds]
            self._metrics[len(feeds)] = OutputMetric(self.outputs(None, len(feeds)), sizes)
        return self._metrics[len(feeds)]

    def error(self, config: QuantConfig, count: int, whole: bool = False) -> float:
        """Return the error of a configuration on the first `count` feeds.

        If a single op is quantized, only the part of the model that it changes runs, unless `whole` is set.
        """
        return self.metric(count).error(self.outputs(config, count) if whole else self.outputs_of(config, count))

    def by_slice(self, config: QuantConfig, count: int) -> tuple[PartError, ...]:
        """Return the error of each part of the outputs on the first `count` feeds."""
        return self.metric(count).by_slice(self.outputs_of(config, count))

    def outputs_of(self, config: QuantConfig, count: int) -> list[list[Array]]:
        """Return the outputs of a configuration, from a run of the part that it changes if that is possible."""
        results = self._partial_outputs(config, count)
        return self.outputs(config, count) if results is None else results

    def _partial_outputs(self, config: QuantConfig, count: int) -> list[list[Array]] | None:
        """Return the outputs of a configuration with one quantized op, from a run of the part that it changes."""
        if len(config.quantized_ops) != 1:
            return None
        try:
            if not self._is_partial_checked:
                self._is_partial_checked = True
                self._partial = self._checked_partial_runs(config)
            results = None if self._partial is None else self._partial.outputs(config, count)
        except Exception as error:  # a runtime may refuse a part of a model that it runs as a whole
            log.info("models with one quantized op run as a whole: %s", error)
            self._partial = results = None
        return None if results is None else [numeric_outputs(result) for result in results]

    def _checked_partial_runs(self, config: QuantConfig) -> abilities.PartialRuns | None:
        """Return what runs parts of models, if the parts of the float model give the outputs of the whole."""
        partial = abilities.partial_runs(self._adapter, self._feeds)
        if partial is None or not self.metric(1).parts:
            return None
        results = partial.outputs(config.fallback(*config.quantized_ops), 1)
        if results is None or not all(map(numeric_outputs, results)):
            return None
        error = self.metric(1).error([numeric_outputs(result) for result in results])
        if error > MAX_PARTIAL_ERROR:
            log.info("models with one quantized op run as a whole: the float model in parts differs by %.2g", error)
            return None
        return partial

    def outputs(self, config: QuantConfig | None, count: int) -> list[list[Array]]:
        """Return the outputs of a configuration on the first `count` feeds; those of its last op if none is numeric."""
        model = self._adapter.assemble(config)
        results = [numeric_outputs(model.run(feed)) for feed in self._feeds[:count]]
        model.close()
        if all(results):
            return results
        record = self._adapter.record_outputs(config, [self._last])
        return [numeric_outputs(record(feed)[self._last]) for feed in self._feeds[:count]]


def numeric_outputs(result: object) -> list[Array]:
    """Return the numeric outputs of a model; texts, maps and sequences are left out."""
    arrays = [np.asarray(part) for part in (result if isinstance(result, list) else [result]) if is_array(part)]
    return [array for array in arrays if array.dtype.kind in "fiub"]


def as_outputs(result: object) -> Outputs:
    """Return the numeric outputs of a model as float arrays."""
    return [array.astype(np.float64) for array in numeric_outputs(result)]


def is_array(part: object) -> bool:
    """Return True if a part of a model's output is an array, not a text, a map or a sequence."""
    return isinstance(part, np.ndarray | np.generic) or hasattr(part, "__array__")


def relative_error(reference: list[Outputs], other: list[Outputs]) -> float:
    """Return squared error over squared signal, summed over samples and averaged over outputs; inf if not finite.

    An output whose shape differs, such as other boxes of a detector, counts as completely wrong.
    """
    errors = []
    for index in range(len(reference[0])):
        signal = sum(float(np.sum(np.square(sample[index]))) for sample in reference)
        noise = sum(_noise(a[index], b[index]) for a, b in zip(reference, other, strict=True))
        errors.append(noise / signal if signal > 0 else noise)
    error = float(np.mean(errors))
    return error if np.isfinite(error) else float("inf")


def same_top1(reference: list[Outputs], other: list[Outputs]) -> float | None:
    """Return how often the largest value of the first output's last axis is the same; None if it has one value."""
    same = []
    for expected, actual in zip(reference, other, strict=True):
        if not expected or expected[0].ndim == 0 or expected[0].shape[-1] < 2 or expected[0].shape != actual[0].shape:
            return None
        same.append(np.ravel(expected[0].argmax(axis=-1) == actual[0].argmax(axis=-1)))
    return float(np.mean(np.concatenate(same)))


def _noise(expected: NDArray[np.float64], actual: NDArray[np.float64]) -> float:
    if expected.shape != actual.shape:
        return max(float(np.sum(np.square(expected))), float(np.sum(np.square(actual))), 1.0)
    return float(np.sum(np.square(expected - actual)))
