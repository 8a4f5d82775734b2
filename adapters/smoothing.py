"""Smoothing: outliers of a few activation channels are moved into the weights, which have the levels for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from quaver.adapters.channels import Channels, Statistic
from quaver.adapters.repairs import RepairableOp, register_repair
from quaver.adapters.rescaling import Float, Rescaling, SharedInput, whole_range

# A channel that is never far from zero, or has no weight to speak of, is left as it is.
_TINY = 1e-5


@register_repair
class Smoothing(Rescaling):
    """Divides channel j by max|x_j|^a / max|w_j|^(1 - a), for a strength a between 0 and 1.

    With a of 1 all of the spread goes into the weights, with 0 none of it but theirs comes into the activations.
    """

    name = "smoothing"
    strengths = (0.5, 0.7, 0.85)
    strength = 0.5

    def statistics(self, op: RepairableOp) -> Iterable[Statistic]:
        return whole_range(op) if op.rescalable else []

    def factors(self, shared: SharedInput, statistics: Mapping[Statistic, Channels], strength: float) -> Float:
        low, high = statistics.values()
        peak = np.maximum(high, -low)
        usable = (peak > _TINY) & (shared.weight_peak > _TINY)
        raw = np.maximum(peak, _TINY) ** strength / np.maximum(shared.weight_peak, _TINY) ** (1 - strength)
        return np.where(usable, raw, 1.0).astype(np.float32)
