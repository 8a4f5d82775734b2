"""The repairs that quaver brings: smoothing, equalisation and bias correction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from quaver.adapters.calibration.channel_statistics import Channels, Statistic
from quaver.adapters.repairs.base import Repair, RepairableOp, Rounding, register_repair
from quaver.adapters.repairs.rescaling import Float, Rescaling, SharedInput, whole_range

# A channel whose largest activation or weight is smaller is not rescaled: its factor would be noise. Judgement.
_MIN_ACTIVATION_PEAK = 1e-5
# The same for weights alone, which are smaller than activations. Judgement.
_MIN_WEIGHT_PEAK = 1e-8


@register_repair
class Smoothing(Rescaling):
    """Moves outliers of a few activation channels into the weights, which have enough levels for them.

    It divides channel j by max|x_j|^a / max|w_j|^(1 - a), for a strength a between 0 and 1, as SmoothQuant does
    (arXiv 2211.10438). With a = 1 the weights take all of the spread of the activations, with a = 0 the activations
    take all of the spread of the weights.
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


@register_repair
class Equalisation(Rescaling):
    """Gives both weights of a channel the same largest value: the one that computes it, and those that read it.

    It divides channel j by sqrt(max|w_j| of the op that computes it / max|w_j| of the ops that read it). It is for
    weights with one scale for all channels.
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


@register_repair
class BiasCorrection(Repair):
    """Corrects the bias for the mean error that rounding the weight causes in the output.

    The mean output of a linear op is its weight times the mean input, so the mean of each input channel is all that it
    needs. Rounding of the inputs has no mean to speak of. At the padded edges of a convolution, where zeros are read,
    the correction is slightly too large.
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
