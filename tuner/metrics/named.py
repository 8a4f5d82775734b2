"""Metrics by name, for the command line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from quaver.errors import SettingsError
from quaver.metrics.agreement import KINDS, agreement
from quaver.metrics.classification import auc, f1, top1, top_k
from quaver.metrics.metric import Metric
from quaver.metrics.recognition import cer, ctc_exact
from quaver.metrics.retrieval import recall_at_k
from quaver.metrics.segmentation import miou
from quaver.nearest import check_known

LABELLED: dict[str, Callable[..., Metric]] = {
    "top1": top1,
    "top5": top_k,
    "f1": f1,
    "auc": auc,
    "miou": miou,
    "ctc_exact": ctc_exact,
    "cer": cer,
    "recall@1": recall_at_k,
}
# Those that need no labels: agreement, which is that of the first class, and its other kinds.
UNLABELLED = {"agreement": "top1", **{f"agreement_{kind}": kind for kind in KINDS}}
METRICS = (*LABELLED, *UNLABELLED)


def make_metric(name: str, data: Any, labels: Any = None) -> Metric:
    """The metric of a name, with its usual settings."""
    check_known("metric", name, METRICS)
    if name in UNLABELLED:
        return agreement(data, UNLABELLED[name])
    if labels is None:
        raise SettingsError(f"the metric {name!r} needs labels, one for each sample; `agreement` needs none")
    return LABELLED[name](data, labels)
