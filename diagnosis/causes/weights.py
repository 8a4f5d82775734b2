"""Causes in a weight: a channel that needs its own scale, or values that no scale suits."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from quaver.diagnosis.causes.advice import per_channel, to_fp32
from quaver.diagnosis.causes.base import Cause
from quaver.diagnosis.causes.op_evidence import BAD_ERROR, OpEvidence
from quaver.diagnosis.causes.registry import Stage, op_cause
from quaver.diagnosis.statistics.cells import Doubles
from quaver.diagnosis.statistics.weights import WeightShape
from quaver.formatting import number, percent, times

# Judgement: the weight is to blame if rounding it alone makes this part of a bad error and this part of the op's error.
MIN_PART_OF_BAD, MIN_PART_OF_ERROR = 0.5, 0.2
# Judgement: a scale per channel helps if it leaves less than this part of the error.
MAX_REMAINING_ERROR = 0.25
# Judgement: an input channel is an outlier if its largest weight is this multiple of the median channel's.
MIN_OUTLIER_RATIO = 4.0


@op_cause(Stage.WEIGHTS)
def weight_causes(op: OpEvidence) -> Iterator[Cause]:
    """Find out why the weight of a bad op is hard to quantize."""
    shape = op.weight
    if not op.is_bad or shape is None or not shape.scales:
        return
    now = shape.one_error if shape.scales == 1 else shape.channel_error
    if now < max(BAD_ERROR * MIN_PART_OF_BAD, op.record.error * MIN_PART_OF_ERROR):
        return
    if shape.scales == 1 and len(shape.outer) > 1 and shape.channel_error < now * MAX_REMAINING_ERROR:
        yield _one_scale(op, shape)
    else:
        yield _no_scale(op, shape, now)


def _one_scale(op: OpEvidence, shape: WeightShape) -> Cause:
    """Explain that a few channels leave the others few steps; each could have its own scale."""
    channel, reach, median = _peak(shape.outer)
    used_steps = median / reach * shape.steps
    sentence = (
        f"the weights of output channel {channel} reach {number(reach)}, {times(reach / median)} as far as those of "
        f"the median channel ({number(median)}), and all share one scale: the median channel uses "
        f"{number(used_steps)} of {shape.steps} steps. A scale per channel would cut the error of the weights from "
        f"{percent(shape.one_error)} to {percent(shape.channel_error)}."
    )
    fallback = to_fp32([op.name])
    if any(choice.granularity == "per_channel" for choice in op.op.choices):
        return op.cause("one_weight_scale", sentence, [per_channel(op.name), fallback])
    why = f" The runtime does not support that here: {op.context.one_scale}." if op.context.one_scale else ""
    return op.cause("per_channel_dropped", sentence + why, [fallback])


def _no_scale(op: OpEvidence, shape: WeightShape, now: float) -> Cause:
    """Explain that every output channel holds large values, so that a scale per channel does not help."""
    per = "a scale for each output channel" if shape.scales > 1 or len(shape.outer) == 1 else "one scale"
    if shape.inner.size > 1:
        channel, reach, median = _peak(shape.inner)
        if median > 0 and reach > MIN_OUTLIER_RATIO * median:
            sentence = (
                f"the weights for input channel {channel} reach {number(reach)}, {times(reach / median)} as far as "
                f"those for the median input channel ({number(median)}), in every output channel. A scale per "
                f"output channel does not help: the rounding error is still {percent(shape.channel_error)}."
            )
            return op.cause("weight_outlier", sentence, [to_fp32([op.name])])
    sentence = f"a few large weights set {per}: rounding the others to it makes an error of {percent(now)}."
    return op.cause("weight_outlier", sentence, [to_fp32([op.name])])


def _peak(reach: Doubles) -> tuple[int, float, float]:
    """Return the channel with the largest value, that value, and the median channel's.

    Channels of zeros do not count.
    """
    nonzero = reach[reach > 0]
    return int(np.argmax(reach)), float(reach.max()), float(np.median(nonzero)) if nonzero.size else 0.0
