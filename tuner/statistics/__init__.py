"""Statistics of per-sample scores: when to stop a trial early, and the confidence interval of a loss."""

from quaver.statistics.bounds import Bounds, score_bounds
from quaver.statistics.early_stop import EarlyStop, ordered
from quaver.statistics.intervals import Interval, confidence, corrected, paired_interval

__all__ = ["Bounds", "EarlyStop", "Interval", "confidence", "corrected", "ordered", "paired_interval", "score_bounds"]
