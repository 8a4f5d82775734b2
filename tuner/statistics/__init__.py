"""What per-sample scores tell beyond their mean: when a trial is hopeless, and how sure a loss is."""

from quaver.statistics.bounds import Bounds, score_bounds
from quaver.statistics.early_stop import EarlyStop, ordered
from quaver.statistics.intervals import Interval, confidence, corrected, paired_interval

__all__ = ["Bounds", "EarlyStop", "Interval", "confidence", "corrected", "ordered", "paired_interval", "score_bounds"]
