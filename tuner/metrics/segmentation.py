"""Scores of segmentation: the overlap of what a model marks and what is there."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from quaver.errors import EvaluationError, SettingsError
from quaver.metrics.inference import Data
from quaver.metrics.metric import Metric, SampleMetric, SetMetric
from quaver.types import Array


def miou(
    data: Any, labels: Any = None, *, per: str = "set", ignore: int | None = None, axis: int = 1, output: int = 0
) -> Metric:
    """The mean over classes of intersection over union.

    Args:
        data: images, as for `top1`.
        labels: a map of classes for each image.
        per: "set" counts the pixels of all images together, as is usual: one number, no early stop, no interval.
            "image" is a score for each image, over the classes that are in it or are said to be.
        ignore: pixels with this label do not count.
        axis: of the output along which the classes lie, 1 for [n, classes, height, width]. An output without it, or
            with one class only, is a mask: above 0.5 is class 1.
        output: which output of the model to look at.
    """
    if per not in ("set", "image"):
        raise SettingsError(f"`per` must be set or image, not {per!r}")
    kind = _OfSet if per == "set" else _OfImages
    return kind(Data(data, labels), output, ignore, axis)


def _classes(output: Array, labels: Array, axis: int) -> Array:
    """The class of each pixel."""
    if output.shape == labels.shape:
        found = output > 0.5
    elif output.ndim > axis and output.shape[axis] == 1:
        found = output.squeeze(axis) > 0.5
    else:
        found = output.argmax(axis=axis)
    if found.shape != labels.shape:
        raise EvaluationError(
            f"miou: an output of shape {output.shape} gives classes of {found.shape}, and the labels are {labels.shape}"
        )
    return found.astype(np.int64)


def _confusion(said: Array, truth: Array, ignore: int | None) -> NDArray[np.int64]:
    """How many pixels of each class are said to be of each."""
    counted = np.ones(truth.shape, bool) if ignore is None else truth != ignore
    said, truth = said[counted], truth[counted].astype(np.int64)
    size = int(max(said.max(initial=0), truth.max(initial=0))) + 1
    return np.bincount(truth * size + said, minlength=size * size).reshape(size, size)


def _iou(confusion: NDArray[np.int64]) -> float:
    both = np.diag(confusion)
    either = confusion.sum(axis=0) + confusion.sum(axis=1) - both
    there = either > 0
    return float(np.mean(both[there] / either[there])) if there.any() else 1.0


class _OfSet(SetMetric):
    def __init__(self, data: Data, output: int, ignore: int | None, axis: int) -> None:
        super().__init__("miou", data, output)
        self._ignore, self._axis = ignore, axis

    def score(self, batches: list[tuple[Array, Any]]) -> float:
        parts = []
        for output, labels in batches:
            truth = np.asarray(labels)
            parts.append(_confusion(_classes(output, truth, self._axis), truth, self._ignore))
        size = max(len(part) for part in parts)
        return _iou(np.sum([np.pad(part, (0, size - len(part))) for part in parts], axis=0))


class _OfImages(SampleMetric):
    def __init__(self, data: Data, output: int, ignore: int | None, axis: int) -> None:
        super().__init__("miou", data, output)
        self._ignore, self._axis = ignore, axis

    def scores(self, output: Array, labels: Any) -> Any:
        truth = np.asarray(labels)
        said = _classes(output, truth, self._axis)
        return [_iou(_confusion(*pair, self._ignore)) for pair in zip(said, truth, strict=True)]
