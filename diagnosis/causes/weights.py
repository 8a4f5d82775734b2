"""Causes that lie in the weight: a channel that needs a scale of its own, or values that no scale suits."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from quaver.diagnosis.causes.advice import per_channel, to_fp32
from quaver.diagnosis.causes.base import Cause
from quaver.diagnosis.causes.op_evidence import BAD, OpEvidence
from quaver.diagnosis.statistics.cells import Doubles
from quaver.diagnosis.statistics.weights import WeightShape
from quaver.diagnosis.text import number, percent, times

# The weight is to blame if rounding it alone makes this part of what counts as bad, and of the op's error.
_SHARE, _PART = 0.5, 0.2
# A scale for each channel helps if it takes the error down by this much.
_HELPS = 0.25
# A channel stands out if it reaches so many times as far as the median one.
_STANDS_OUT = 4.0


def weight_causes(suspect: OpEvidence) -> Iterator[Cause]:
    """What is wrong with the weight of a bad op."""
    shape = suspect.weight
    if not suspect.bad or shape is None or not shape.scales:
        return
    now = shape.one_error if shape.scales == 1 else shape.channel_error
    if now < max(BAD * _SHARE, suspect.record.error * _PART):
        return
    if shape.scales == 1 and len(shape.outer) > 1 and shape.channel_error < now * _HELPS:
        yield _one_scale(suspect, shape)
    else:
        yield _no_scale(suspect, shape, now)


def _one_scale(suspect: OpEvidence, shape: WeightShape) -> Cause:
    """One channel, or a few, leave the others few steps; each could have a scale of its own."""
    channel, reach, median = _peak(shape.outer)
    left = median / reach * shape.steps
    sentence = (
        f"the weights of output channel {channel} reach {number(reach)}, {times(reach / median)} as far as those of "
        f"the median channel ({number(median)}), and all share one scale: the median channel is left {number(left)} of "
        f"{shape.steps} steps. A scale for each channel would bring the error of the weights from "
        f"{percent(shape.one_error)} to {percent(shape.channel_error)}."
    )
    fallback = to_fp32([suspect.name])
    if any(choice.granularity == "per_channel" for choice in suspect.op.choices):
        return suspect.cause("one_weight_scale", sentence, [per_channel(suspect.name), fallback])
    why = f" It cannot have that: {suspect.context.one_scale}." if suspect.context.one_scale else ""
    return suspect.cause("per_channel_dropped", sentence + why, [fallback])


def _no_scale(suspect: OpEvidence, shape: WeightShape, now: float) -> Cause:
    """Large values sit in every output channel, so that a scale for each does not help."""
    per = "a scale for each output channel" if shape.scales > 1 or len(shape.outer) == 1 else "one scale"
    if shape.inner.size > 1:
        channel, reach, median = _peak(shape.inner)
        if median > 0 and reach > _STANDS_OUT * median:
            sentence = (
                f"the weights for input channel {channel} reach {number(reach)}, {times(reach / median)} as far as "
                f"those for the median input channel ({number(median)}), in every output channel. A scale for each "
                f"output channel does not help: rounding the weights makes an error of {percent(shape.channel_error)} "
                "even so."
            )
            return suspect.cause("weight_outlier", sentence, [to_fp32([suspect.name])])
    sentence = f"few large weights set {per}: rounding the others to it makes an error of {percent(now)}."
    return suspect.cause("weight_outlier", sentence, [to_fp32([suspect.name])])


def _peak(reach: Doubles) -> tuple[int, float, float]:
    """The channel that reaches furthest, how far, and how far the median channel does; dead ones do not count."""
    alive = reach[reach > 0]
    return int(np.argmax(reach)), float(reach.max()), float(np.median(alive)) if alive.size else 0.0


# Asked of each op that is looked at.
FINDERS = (weight_causes,)
