"""Equalisation: the weights of two ops in a row get like sizes in each channel, so that one scale serves all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from quaver.adapters.channels import Channels, Statistic
from quaver.adapters.repairs import RepairableOp, register_repair
from quaver.adapters.rescaling import Float, Rescaling, SharedInput, whole_range

# A channel that has next to no weight on one side is left as it is.
_TINY = 1e-8


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
        usable = (shared.written_peak > _TINY) & (shared.weight_peak > _TINY)
        raw = np.sqrt(np.maximum(shared.written_peak, _TINY) / np.maximum(shared.weight_peak, _TINY))
        return np.where(usable, raw, 1.0).astype(np.float32)
