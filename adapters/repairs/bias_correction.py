"""Bias correction: the mean error that rounded weights make is taken out of the bias."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from quaver.adapters.calibration.channel_statistics import Channels, Statistic
from quaver.adapters.repairs.base import Repair, RepairableOp, Rounding, register_repair


@register_repair
class BiasCorrection(Repair):
    """Adds to the bias what the rounding of the weight takes from the mean output.

    The mean output of a linear op is its weight times the mean input, so that the mean of each input channel is all
    that must be known. The inputs' own rounding has no mean to speak of. At the padded edges of a convolution, where
    zeros are read, it is a little too much.
    """

    name = "bias_correction"

    def statistics(self, op: RepairableOp) -> Iterable[Statistic]:
        return [Statistic(op.reads, "mean", op.axis)] if op.takes_bias else []

    def apply(self, op: RepairableOp, statistics: Mapping[Statistic, Channels], quantized: Rounding) -> RepairableOp:
        if not op.takes_bias:
            return op
        (mean,) = statistics.values()
        lost = (op.weight - quantized(op.weight)).astype(np.float64)
        lost = lost.sum(axis=tuple(range(2, lost.ndim))).reshape(op.groups, -1, lost.shape[1])
        if mean.size != op.groups * lost.shape[2]:  # the tensor was empty in every calibration sample
            return op
        shift = np.einsum("goi,gi->go", lost, mean.reshape(op.groups, -1)).reshape(-1)
        return replace(op, bias=(shift if op.bias is None else op.bias + shift).astype(np.float32))
