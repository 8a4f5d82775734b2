"""Metrics of classifiers: top-1, top-k, F1 and AUC."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from quaver.errors import EvaluationError, SettingsError
from quaver.metrics.inference import Data, LabelData, SampleData
from quaver.metrics.metric import Metric, SampleMetric, SetMetric
from quaver.types import Array


def top1(data: SampleData, labels: LabelData = None, *, output: int = 0) -> Metric:
    """Score 1 for each sample whose largest output is the labelled class, counted from 0.

    Args:
        data: samples: an array, a dict of arrays by input name, or an iterable of batches.
        labels: one for each sample; leave it out if batches are pairs of inputs and labels.
        output: index of the output that holds the classes along its last axis.
    """
    return _TopK("top1", 1, Data(data, labels), output)


def top_k(data: SampleData, labels: LabelData = None, *, k: int = 5, output: int = 0) -> Metric:
    """Score 1 for each sample whose label is among the `k` largest outputs; see `top1` for the arguments."""
    if k < 1:
        raise SettingsError(f"`k` must be at least 1, not {k!r}")
    return _TopK(f"top{k}", k, Data(data, labels), output)


def f1(data: SampleData, labels: LabelData = None, *, average: str = "macro", output: int = 0) -> Metric:
    """Score the whole set by F1: one number, so there is no early stop and no interval.

    Args:
        data: samples, as for `top1`.
        labels: a class for each sample; for multi-label data a row of 0 and 1, where outputs above 0.5 count as 1.
        average: "macro" is the mean over classes, "micro" pools all classes, "binary" is the F1 of class 1.
        output: index of the output to score.
    """
    if average not in ("macro", "micro", "binary"):
        raise SettingsError(f"`average` must be macro, micro or binary, not {average!r}")
    return _F1(average, Data(data, labels), output)


def auc(data: SampleData, labels: LabelData = None, *, output: int = 0) -> Metric:
    """Score the whole set by the area under the ROC curve, for labels of 0 and 1.

    It is one number, so there is no early stop and no interval. The model gives one number for each sample, or one for
    each of two classes, of which the second is used.
    """
    return _Auc("auc", Data(data, labels), output)


class _TopK(SampleMetric):
    def __init__(self, name: str, k: int, data: Data, output: int) -> None:
        super().__init__(name, data, output)
        self._k = k

    def scores(self, output: Array, labels: LabelData) -> Any:
        wanted = np.asarray(labels).reshape(-1)
        if output.ndim < 2 or len(wanted) != output.size // output.shape[-1]:
            return np.empty(0)
        rows = output.reshape(-1, output.shape[-1])
        if self._k == 1:
            return rows.argmax(axis=1) == wanted
        # Among equal outputs the class with the lower index ranks first, as in argmax.
        own = np.take_along_axis(rows, wanted[:, None].astype(np.int64), axis=1)
        earlier = (rows == own) & (np.arange(rows.shape[1]) < wanted[:, None])
        return ((rows > own) | earlier).sum(axis=1) < self._k


class _F1(SetMetric):
    def __init__(self, average: str, data: Data, output: int) -> None:
        super().__init__("f1", data, output)
        self._average = average

    def score(self, batches: list[tuple[Array, LabelData]]) -> float:
        labels = np.concatenate([np.asarray(labels) for _, labels in batches])
        outputs = np.concatenate([output.reshape(len(output), -1) for output, _ in batches])
        if labels.ndim == 2:
            truth, predicted = labels.astype(bool), outputs > 0.5
        else:
            count = max(outputs.shape[1], int(labels.max()) + 1)
            classes = np.arange(count)
            picked = outputs.argmax(axis=1) if outputs.shape[1] > 1 else (outputs[:, 0] > 0.5).astype(int)
            truth, predicted = labels[:, None] == classes, picked[:, None] == classes
        if self._average == "binary":
            truth, predicted = truth[:, -1], predicted[:, -1]
        # Imported here because scikit-learn takes a second to import. A class without labels and predictions is NaN and
        # does not count; if all are NaN, the score is 0.
        from sklearn.metrics import f1_score

        score = float(f1_score(truth, predicted, average=self._average, zero_division=np.nan))
        return 0.0 if math.isnan(score) else score


class _Auc(SetMetric):
    def score(self, batches: list[tuple[Array, LabelData]]) -> float:
        labels = np.concatenate([np.asarray(labels).reshape(-1) for _, labels in batches])
        outputs = np.concatenate([output.reshape(len(output), -1)[:, -1] for output, _ in batches]).astype(float)
        is_positive = labels == 1
        if is_positive.all() or not is_positive.any() or not np.isin(labels, (0, 1)).all():
            raise EvaluationError("auc needs labels of 0 and 1, and at least one of each")
        from sklearn.metrics import roc_auc_score

        return float(roc_auc_score(labels, outputs))
