"""Causes in tensors that use only a few steps of their range, which the size of the error does not show."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from quaver.diagnosis.causes.advice import to_fp32
from quaver.diagnosis.causes.base import Cause
from quaver.diagnosis.causes.op_evidence import OpEvidence
from quaver.diagnosis.causes.registry import Stage, op_cause
from quaver.formatting import number, times

# The thresholds are judgement, checked on planted causes (`tests/diagnosis/planted_damage.py`).
# A tensor or channel with fewer steps than this loses more than 1 % of its variance to rounding.
FEW_STEPS = 16.0
# A channel with fewer steps than this is mostly rounded to one or two values.
LOST_STEPS = 4.0
# The weights of a channel are large if they are this multiple of the median channel's.
MIN_WEIGHT_RATIO = 4.0

_WRITERS_AND_READERS = "keep all that write or read this tensor in fp32"


@op_cause(Stage.ACTIVATIONS)
def dead_range(op: OpEvidence) -> Iterator[Cause]:
    """Find a tensor whose values lie far from zero, which its range has to include.

    The error is small beside the values, and large beside their differences.
    """
    if not op.precision.quantized:
        return
    for which, tensor, activation in op.tensors():
        if not activation.count or activation.low * activation.high <= 0 or not tensor.parameters.scale:
            continue
        steps = (activation.high - activation.low) / float(tensor.parameters.scale)
        if 0 < steps < FEW_STEPS:
            low, high = tensor.parameters.limits
            sentence = (
                f"its {which} goes from {number(activation.low)} to {number(activation.high)}, but the range must "
                f"include zero ({number(low)} .. {number(high)}): no value falls into most of it, and all values "
                f"share {number(steps)} of {tensor.parameters.steps} steps."
            )
            remedy = to_fp32(op.ops_around(tensor), _WRITERS_AND_READERS)
            yield op.cause("dead_range", sentence, [remedy], weight=1 / steps)
            return


@op_cause(Stage.TINY_CHANNELS)
def tiny_channels(op: OpEvidence) -> Iterator[Cause]:
    """Find a channel of an input that is rounded away, although large weights make it matter."""
    if op.weight is None or not op.weight.inner.size:
        return
    inner = op.weight.inner
    for which, tensor, activation in op.tensors():
        spans, scale = activation.channel_high - activation.channel_low, float(tensor.parameters.scale)
        if which == "output" or spans.shape != inner.shape or not scale or not np.isfinite(spans).all():
            continue
        median = float(np.median(inner[inner > 0])) if (inner > 0).any() else 0.0
        lost = (spans > 0) & (spans < LOST_STEPS * scale) & (inner > MIN_WEIGHT_RATIO * median)
        if not lost.any() or lost.all():
            continue
        channel = int(np.argmax(np.where(lost, inner * spans, 0.0)))
        reach = activation.channel_reach
        sentence = (
            f"input channel {channel} reaches only {number(float(reach[channel]))} ({number(float(np.median(reach)))} "
            f"in the median channel), and its weights are {times(float(inner[channel]) / median)} as large as the "
            f"median channel's. It matters, but all channels have one scale, in which it uses "
            f"{number(float(spans[channel]) / scale)} of {tensor.parameters.steps} steps."
        )
        yield op.cause("tiny_channel", sentence, [to_fp32(op.ops_around(tensor), _WRITERS_AND_READERS)])
        return
