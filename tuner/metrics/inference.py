"""A model run over a whole set of samples, whatever form the set has, with the labels that belong to each batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from quaver.adapters import Model
from quaver.adapters.data import BATCH, InputSpec, fixed_batch, match, samples, split
from quaver.errors import EvaluationError, SettingsError
from quaver.types import Array, Feed


class Batch(NamedTuple):
    """What a model makes of a few samples.

    Attributes:
        outputs: all outputs of the model.
        labels: of these samples; None if there are none.
        first: the number of the first sample.
        size: how many there are.
    """

    outputs: list[Array]
    labels: Any
    first: int
    size: int


class Data:
    """Samples, and their labels if there are any.

    Samples are an array, a dict of arrays by input name, or an iterable of batches as `calib_dataloader` takes them.
    Labels are one for each sample; where none are given, batches may be pairs of inputs and labels. What can be gone
    through only once is kept in memory.
    """

    def __init__(self, samples: Any, labels: Any = None, needs_labels: bool = True) -> None:
        whole = isinstance(samples, Mapping) or hasattr(samples, "__array__") or hasattr(samples, "numpy")
        if isinstance(samples, str | bytes) or not (whole or hasattr(samples, "__iter__")):
            raise SettingsError(
                f"the samples of a metric are an array, a dict of arrays or an iterable of batches, not {samples!r:.60}"
            )
        if whole and labels is None and needs_labels:
            raise SettingsError("a metric of whole arrays needs labels, one for each sample")
        self._whole = whole
        self._samples = list(samples) if not whole and iter(samples) is samples else samples
        self._labels = None if labels is None else _listed(labels)
        self._paired = labels is None and needs_labels

    @property
    def count(self) -> int | None:
        """Return how many samples there are, if that can be told before they are run."""
        if self._labels is not None:
            return len(self._labels)
        shape = getattr(self._samples, "shape", None) if self._whole else None
        return int(shape[0]) if shape else None

    def run(self, model: Model) -> Iterator[Batch]:
        """Run the model over all samples, batch by batch."""
        first = 0
        for feed, labels in self._feeds(model.inputs):
            for part in split(feed, fixed_batch(model.inputs) or samples(feed)):
                count = samples(part)
                outputs = _run(model, part, count)
                yield Batch(outputs, self._of(labels, first, count), first, count)
                first += count
                labels = None if labels is None else labels[count:]
        if self._labels is not None and first != len(self._labels):
            raise EvaluationError(f"there are {first} samples and {len(self._labels)} labels: they must be as many")

    def first(self, model: Model) -> Feed:
        """One batch of the set, as the model takes it."""
        feed, _ = next(iter(self._feeds(model.inputs)))
        return feed

    def _of(self, labels: Any, first: int, count: int) -> Any:
        if self._labels is None:
            return None if labels is None else labels[:count]
        if first + count > len(self._labels):
            raise EvaluationError(f"there are only {len(self._labels)} labels, and a sample {first + count - 1}")
        return self._labels[first : first + count]

    def _feeds(self, inputs: Sequence[InputSpec]) -> Iterator[tuple[Feed, Any]]:
        """All samples in feeds of any size, each with the labels that came with it."""
        free = [spec if not spec.shape else replace(spec, shape=(None, *spec.shape[1:])) for spec in inputs]
        if self._whole:
            whole = (
                {name: self._samples[name] for name in self._samples} if isinstance(self._samples, Mapping) else None
            )
            feed = match(self._samples if whole is None else whole, free, "the samples of the metric", labels=False)
            for part in split(feed, fixed_batch(inputs) or BATCH):
                yield part, None
            return
        for index, batch in enumerate(self._samples):
            where = f"batch {index} of the metric"
            if not self._paired:
                yield match(batch, free, where), None
                continue
            if not isinstance(batch, tuple | list) or len(batch) < 2:
                raise EvaluationError(f"{where} must be a pair of inputs and labels, for no labels were given besides")
            given = batch[0] if len(batch) == 2 else batch[:-1]
            feed = match(given, free, where, labels=False)
            labels = _listed(batch[-1])
            if len(labels) != samples(feed):
                raise EvaluationError(f"{where} has {samples(feed)} samples and {len(labels)} labels")
            yield feed, labels


def _listed(labels: Any) -> Any:
    """Labels as an array, or as a list where they are texts or sequences of any length."""
    if hasattr(labels, "numpy"):
        labels = labels.numpy()
    return labels if isinstance(labels, np.ndarray) else list(labels)


def _run(model: Model, feed: Feed, count: int) -> list[Array]:
    """All outputs; a model that fixes its batch gets the last samples as often as it takes, and they are cut off."""
    fixed = fixed_batch(model.inputs) or 0
    short = count < fixed
    if short:
        rows = np.minimum(np.arange(fixed), count - 1)
        feed = {name: array[rows] if array.ndim and len(array) == count else array for name, array in feed.items()}
    found = model.run(feed)
    outputs = [np.asarray(one) for one in (found if isinstance(found, list) else [found])]
    return [one[:count] if short and one.ndim and len(one) == fixed else one for one in outputs]
