"""Metrics by name, for the command line."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from quaver.errors import SettingsError
from quaver.metrics.agreement import KINDS, agreement
from quaver.metrics.classification import auc, f1, top1, top_k
from quaver.metrics.inference import LabelData, SampleData
from quaver.metrics.language import kl_divergence, perplexity, same_top_token
from quaver.metrics.metric import Metric
from quaver.metrics.recognition import cer, ctc_exact
from quaver.metrics.retrieval import recall_at_k
from quaver.metrics.segmentation import miou
from quaver.suggestions import check_known

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
# Metrics that need no labels: `agreement` compares the first class, and the others are its other kinds.
UNLABELLED = {"agreement": "top1", **{f"agreement_{kind}": kind for kind in KINDS}}
# Metrics of language models, which need texts as token numbers and no labels.
TEXT: dict[str, Callable[..., Metric]] = {
    "perplexity": perplexity,
    "kl_divergence": kl_divergence,
    "same_top_token": same_top_token,
}
METRICS = (*LABELLED, *UNLABELLED, *TEXT)


def make_metric(name: str, data: SampleData, labels: LabelData = None, **options: Any) -> Metric:
    """Make a metric by its name; `options` are the keywords of its function."""
    check_known("metric", name, METRICS)
    function: Callable[..., Metric] = agreement if name in UNLABELLED else {**LABELLED, **TEXT}[name]
    keywords = [
        key
        for key, parameter in inspect.signature(function).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    ]
    for key in options:
        check_known(f"option of the metric {name!r}:", key, keywords)
    if name in UNLABELLED:
        return agreement(data, UNLABELLED[name], **options)
    if name in TEXT:
        return function(data, **options)
    if labels is None:
        raise SettingsError(f"the metric {name!r} needs labels, one for each sample; `agreement` needs none")
    return function(data, labels, **options)
