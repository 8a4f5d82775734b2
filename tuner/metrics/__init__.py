"""Ready-made metrics: each is an `eval_func`, so a first run needs no code."""

from quaver.adapters.generation import text_batches
from quaver.metrics.agreement import agreement, disagreements
from quaver.metrics.classification import auc, f1, top1, top_k
from quaver.metrics.language import kl_divergence, perplexity, same_top_token
from quaver.metrics.metric import Metric
from quaver.metrics.named import METRICS, make_metric
from quaver.metrics.recognition import cer, ctc_exact
from quaver.metrics.retrieval import recall_at_k
from quaver.metrics.segmentation import miou

__all__ = [
    "METRICS", "Metric", "agreement", "auc", "cer", "ctc_exact", "disagreements", "f1", "kl_divergence", "make_metric",
    "miou", "perplexity", "recall_at_k", "same_top_token", "text_batches", "top1", "top_k",
]  # fmt: skip
