"""Scores of classifiers: is the right class first, or among the first; F1 and AUC of the whole set."""

from __future__ import annotations

from typing import Any

import numpy as np

from quaver.errors import EvaluationError, SettingsError
from quaver.metrics.inference import Data
from quaver.metrics.metric import Metric, SampleMetric, SetMetric
from quaver.types import Array


def top1(data: Any, labels: Any = None, *, output: int = 0) -> Metric:
    """Whether the class with the largest output is the label, a number from 0.

    Args:
        data: samples: an array, a dict of arrays by input name, or an iterable of batches.
        labels: one for each sample; may be left out if batches are pairs of inputs and labels.
        output: which output of the model holds the classes, along its last axis.
    """
    return _TopK("top1", 1, Data(data, labels), output)


def top_k(data: Any, labels: Any = None, *, k: int = 5, output: int = 0) -> Metric:
    """Whether the label is among the `k` classes with the largest outputs; see `top1`."""
    if k < 1:
        raise SettingsError(f"`k` must be at least 1, not {k!r}")
    return _TopK(f"top{k}", k, Data(data, labels), output)


def f1(data: Any, labels: Any = None, *, average: str = "macro", output: int = 0) -> Metric:
    """The F1 score of the whole set, one number: no early stop, no interval. See `top1`.

    Args:
        data: samples, as for `top1`.
        labels: a class for each sample; or, for several at once, a row of 0 and 1, and outputs above 0.5 count as yes.
        average: "macro" is the mean over classes, "micro" counts all classes together, "binary" looks at class 1.
        output: which output of the model to look at.
    """
    if average not in ("macro", "micro", "binary"):
        raise SettingsError(f"`average` must be macro, micro or binary, not {average!r}")
    return _F1(average, Data(data, labels), output)


def auc(data: Any, labels: Any = None, *, output: int = 0) -> Metric:
    """The area under the ROC curve of the whole set, for labels of 0 and 1: one number, no early stop, no interval.

    The model gives one number for each sample, or one for each of two classes, of which the second counts.
    """
    return _Auc("auc", Data(data, labels), output)


class _TopK(SampleMetric):
    def __init__(self, name: str, k: int, data: Data, output: int) -> None:
        super().__init__(name, data, output)
        self._k = k

    def scores(self, output: Array, labels: Any) -> Any:
        wanted = np.asarray(labels).reshape(-1)
        if output.ndim < 2 or len(wanted) != output.size // output.shape[-1]:
            return np.empty(0)
        rows = output.reshape(-1, output.shape[-1])
        if self._k == 1:
            return rows.argmax(axis=1) == wanted
        # As many classes may come before the label as there are places; of equals the first is taken, as by argmax.
        own = np.take_along_axis(rows, wanted[:, None].astype(np.int64), axis=1)
        earlier = (rows == own) & (np.arange(rows.shape[1]) < wanted[:, None])
        return ((rows > own) | earlier).sum(axis=1) < self._k


class _F1(SetMetric):
    def __init__(self, average: str, data: Data, output: int) -> None:
        super().__init__("f1", data, output)
        self._average = average

    def score(self, batches: list[tuple[Array, Any]]) -> float:
        labels = np.concatenate([np.asarray(labels) for _, labels in batches])
        outputs = np.concatenate([output.reshape(len(output), -1) for output, _ in batches])
        if labels.ndim == 2:
            truth, said = labels.astype(bool), outputs > 0.5
        else:
            count = max(outputs.shape[1], int(labels.max()) + 1)
            classes = np.arange(count)
            picked = outputs.argmax(axis=1) if outputs.shape[1] > 1 else (outputs[:, 0] > 0.5).astype(int)
            truth, said = labels[:, None] == classes, picked[:, None] == classes
        if self._average == "binary":
            truth, said = truth[:, -1:], said[:, -1:]
        axis = None if self._average == "micro" else 0
        right, either = (truth & said).sum(axis=axis), truth.sum(axis=axis) + said.sum(axis=axis)
        seen = np.atleast_1d(either) > 0  # a class that nobody has and nobody says is no class of this set
        return float(np.mean(2 * np.atleast_1d(right)[seen] / np.atleast_1d(either)[seen])) if seen.any() else 0.0


class _Auc(SetMetric):
    def score(self, batches: list[tuple[Array, Any]]) -> float:
        labels = np.concatenate([np.asarray(labels).reshape(-1) for _, labels in batches])
        outputs = np.concatenate([output.reshape(len(output), -1)[:, -1] for output, _ in batches]).astype(float)
        yes = labels == 1
        if yes.all() or not yes.any() or not np.isin(labels, (0, 1)).all():
            raise EvaluationError("auc needs labels of 0 and 1, some of each")
        # The rank of each output, of equals their mean: how many pairs of a yes and a no are in order.
        _, place, counts = np.unique(outputs, return_inverse=True, return_counts=True)
        ends = np.cumsum(counts)
        ranks = (ends - (counts - 1) / 2)[place.reshape(-1)]
        positives = int(yes.sum())
        in_order = float(ranks[yes].sum()) - positives * (positives + 1) / 2
        return float(in_order / (positives * (yes.size - positives)))
