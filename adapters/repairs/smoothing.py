"""Smoothing: outliers of a few activation channels are moved into the weights, which have the levels for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from quaver.adapters.calibration.channel_statistics import Channels, Statistic
from quaver.adapters.repairs.base import RepairableOp, register_repair
from quaver.adapters.repairs.rescaling import Float, Rescaling, SharedInput, whole_range

# A channel that is never far from zero, or has no weight to speak of, is left as it is.
_MIN_ACTIVATION_PEAK = 1e-5


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
        usable = (peak > _MIN_ACTIVATION_PEAK) & (shared.weight_peak > _MIN_ACTIVATION_PEAK)
        raw = np.maximum(peak, _MIN_ACTIVATION_PEAK) ** strength / np.maximum(
            shared.weight_peak, _MIN_ACTIVATION_PEAK
        ) ** (1 - strength)
        return np.where(usable, raw, 1.0).astype(np.float32)


# A channel that has next to no weight on one side is left as it is.
_MIN_WEIGHT_PEAK = 1e-8


@register_repair
class Equalisation(Rescaling):
    """Divides channel j by sqrt(max|w_j| of the op that computes it / max|w_j| of those that read it).

    Both have the same largest weight in each channel then. It is for weights with one scale for all channels.
    """

    name = "equalisation"

    def statistics(self, op: RepairableOp) -> Iterable[Statistic]:
        return whole_range(op) if op.rescalable and op.written_peak is not None else []

    def factors(self, shared: SharedInput, statistics: Mapping[Statistic, Channels], strength: float) -> Float:
        if shared.written_peak is None:
            return np.ones_like(shared.weight_peak)
        usable = (shared.written_peak > _MIN_WEIGHT_PEAK) & (shared.weight_peak > _MIN_WEIGHT_PEAK)
        raw = np.sqrt(
            np.maximum(shared.written_peak, _MIN_WEIGHT_PEAK) / np.maximum(shared.weight_peak, _MIN_WEIGHT_PEAK)
        )
        return np.where(usable, raw, 1.0).astype(np.float32)
