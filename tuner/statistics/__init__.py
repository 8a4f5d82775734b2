"""What per-sample scores tell beyond their mean: when a trial is hopeless, and how sure a loss is."""

from quaver.statistics.bounds import Bounds, score_bounds
from quaver.statistics.early_stop import EarlyStop, ordered
from quaver.statistics.intervals import Interval, corrected, paired_interval, sureness

__all__ = ["Bounds", "EarlyStop", "Interval", "corrected", "ordered", "paired_interval", "score_bounds", "sureness"]
