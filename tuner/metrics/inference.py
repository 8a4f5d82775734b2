"""Run a model over all samples of a metric, and pair its outputs with their labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from quaver.adapters import Model
from quaver.adapters.data import BATCH, InputSpec, count_samples, fixed_batch, match_inputs, split
from quaver.errors import EvaluationError, SettingsError
from quaver.types import Array, Feed

SampleData: TypeAlias = Any
"""Samples in any form that a metric accepts: an array, a dict of arrays, or an iterable of batches."""

LabelData: TypeAlias = Any
"""One label for each sample: an array, or a list of texts or sequences."""


class Batch(NamedTuple):
    """The outputs of a model for one batch of samples.

    Attributes:
        outputs: all outputs of the model.
        labels: labels of these samples; None if there are none.
        first: index of the first sample.
        size: number of samples.
    """

    outputs: list[Array]
    labels: LabelData
    first: int
    size: int


class Data:
    """The samples of a metric and their labels.

    Samples are an array, a dict of arrays by input name, or an iterable of batches as `calib_dataloader` accepts them.
    There is one label for each sample. Without `labels`, batches may be pairs of inputs and labels. An iterator, which
    can be read only once, is held in memory.
    """

    def __init__(self, samples: SampleData, labels: LabelData = None, needs_labels: bool = True) -> None:
        whole = isinstance(samples, Mapping) or hasattr(samples, "__array__") or hasattr(samples, "numpy")
        if isinstance(samples, str | bytes) or not (whole or hasattr(samples, "__iter__")):
            raise SettingsError(
                "the samples of a metric must be an array, a dict of arrays or an iterable of batches, "
                f"not {samples!r:.60}"
            )
        if whole and labels is None and needs_labels:
            raise SettingsError("samples given as arrays need `labels`, one for each sample")
        self._whole = whole
        self._samples = list(samples) if not whole and iter(samples) is samples else samples
        self._labels = None if labels is None else _listed(labels)
        self._paired = labels is None and needs_labels

    @property
    def count(self) -> int | None:
        """Return the number of samples if it is known before they run."""
        if self._labels is not None:
            return len(self._labels)
        shape = getattr(self._samples, "shape", None) if self._whole else None
        return int(shape[0]) if shape else None

    def run(self, model: Model) -> Iterator[Batch]:
        """Run the model over all samples, batch by batch."""
        for _, batch in self.run_with_feeds(model):
            yield batch

    def run_with_feeds(self, model: Model) -> Iterator[tuple[Feed, Batch]]:
        """Run the model over all samples, batch by batch, and yield what it read, too."""
        first = 0
        for feed, labels in self._feeds(model.inputs):
            for part in split(feed, fixed_batch(model.inputs) or count_samples(feed)):
                count = count_samples(part)
                outputs = _run(model, part, count)
                yield part, Batch(outputs, self._of(labels, first, count), first, count)
                first += count
                labels = None if labels is None else labels[count:]
        if self._labels is not None and first != len(self._labels):
            raise EvaluationError(
                f"there are {first} samples but {len(self._labels)} labels: give one label for each sample"
            )

    def first(self, model: Model) -> Feed:
        """Return the first batch, in the form the model takes."""
        feed, _ = next(iter(self._feeds(model.inputs)))
        return feed

    def _of(self, labels: LabelData, first: int, count: int) -> Any:
        if self._labels is None:
            return None if labels is None else labels[:count]
        if first + count > len(self._labels):
            raise EvaluationError(
                f"there are only {len(self._labels)} labels, but more samples: sample {first + count - 1} has none"
            )
        return self._labels[first : first + count]

    def _feeds(self, inputs: Sequence[InputSpec]) -> Iterator[tuple[Feed, Any]]:
        """Yield all samples in feeds of any size, each with the labels that came with it."""
        free = [spec if not spec.shape else replace(spec, shape=(None, *spec.shape[1:])) for spec in inputs]
        if self._whole:
            whole = (
                {name: self._samples[name] for name in self._samples} if isinstance(self._samples, Mapping) else None
            )
            feed = match_inputs(
                self._samples if whole is None else whole, free, "the samples of the metric", labels=False
            )
            for part in split(feed, fixed_batch(inputs) or BATCH):
                yield part, None
            return
        for index, batch in enumerate(self._samples):
            where = f"batch {index} of the metric"
            if not self._paired:
                yield match_inputs(batch, free, where), None
                continue
            if not isinstance(batch, tuple | list) or len(batch) < 2:
                raise EvaluationError(f"{where} must be a pair of inputs and labels, because no `labels` were passed")
            inputs_of_batch = batch[0] if len(batch) == 2 else batch[:-1]
            feed = match_inputs(inputs_of_batch, free, where, labels=False)
            labels = _listed(batch[-1])
            if len(labels) != count_samples(feed):
                raise EvaluationError(f"{where} has {count_samples(feed)} samples and {len(labels)} labels")
            yield feed, labels


def _listed(labels: LabelData) -> Any:
    """Return labels as an array, or as a list if they are texts or sequences of different lengths."""
    if hasattr(labels, "numpy"):
        labels = labels.numpy()
    return labels if isinstance(labels, np.ndarray) else list(labels)


def _run(model: Model, feed: Feed, count: int) -> list[Array]:
    """Return all outputs.

    If the model fixes its batch size and there are fewer samples, the last one is repeated; its copies are cut off.
    """
    fixed = fixed_batch(model.inputs) or 0
    short = count < fixed
    if short:
        rows = np.minimum(np.arange(fixed), count - 1)
        feed = {name: array[rows] if array.ndim and len(array) == count else array for name, array in feed.items()}
    result = model.run(feed)
    outputs = [np.asarray(output) for output in (result if isinstance(result, list) else [result])]
    return [output[:count] if short and output.ndim and len(output) == fixed else output for output in outputs]
