"""Metrics of segmentation: intersection over union."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from quaver.errors import EvaluationError, SettingsError
from quaver.metrics.inference import Data, LabelData, SampleData
from quaver.metrics.metric import Metric, SampleMetric, SetMetric
from quaver.types import Array


def miou(
    data: SampleData,
    labels: LabelData = None,
    *,
    per: str = "set",
    ignore: int | None = None,
    axis: int = 1,
    output: int = 0,
) -> Metric:
    """Score masks by intersection over union, averaged over classes.

    Args:
        data: images, as for `top1`.
        labels: a map of classes for each image.
        per: "set" pools the pixels of all images, as is usual: one number, so no early stop and no interval. "image"
            scores each image over the classes that it contains or the model predicts in it.
        ignore: label of pixels that do not count.
        axis: class axis of the output, 1 for [n, classes, height, width]. An output without that axis, or with one
            class, is a mask: values above 0.5 are class 1.
        output: index of the output to score.
    """
    if per not in ("set", "image"):
        raise SettingsError(f"`per` must be set or image, not {per!r}")
    kind = _OfSet if per == "set" else _OfImages
    return kind(Data(data, labels), output, ignore, axis)


def _classes(output: Array, labels: Array, axis: int) -> Array:
    """Return the class of each pixel."""
    if output.shape == labels.shape:
        classes = output > 0.5
    elif output.ndim > axis and output.shape[axis] == 1:
        classes = output.squeeze(axis) > 0.5
    else:
        classes = output.argmax(axis=axis)
    if classes.shape != labels.shape:
        raise EvaluationError(
            f"miou: an output of shape {output.shape} gives classes of shape {classes.shape}, "
            f"but the labels have shape {labels.shape}"
        )
    return classes.astype(np.int64)


def _confusion(predicted: Array, truth: Array, ignore: int | None) -> NDArray[np.int64]:
    """Return the confusion matrix: pixels by true class (rows) and predicted class (columns)."""
    counted = np.ones(truth.shape, bool) if ignore is None else truth != ignore
    predicted, truth = predicted[counted], truth[counted].astype(np.int64)
    size = int(max(predicted.max(initial=0), truth.max(initial=0))) + 1
    return np.bincount(truth * size + predicted, minlength=size * size).reshape(size, size)


def _iou(confusion: NDArray[np.int64]) -> float:
    both = np.diag(confusion)
    either = confusion.sum(axis=0) + confusion.sum(axis=1) - both
    occurs = either > 0
    return float(np.mean(both[occurs] / either[occurs])) if occurs.any() else 1.0


class _OfSet(SetMetric):
    def __init__(self, data: Data, output: int, ignore: int | None, axis: int) -> None:
        super().__init__("miou", data, output)
        self._ignore, self._axis = ignore, axis

    def score(self, batches: list[tuple[Array, LabelData]]) -> float:
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

    def scores(self, output: Array, labels: LabelData) -> Any:
        truth = np.asarray(labels)
        predicted = _classes(output, truth, self._axis)
        return [_iou(_confusion(*pair, self._ignore)) for pair in zip(predicted, truth, strict=True)]
