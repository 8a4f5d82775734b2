"""Causes in activations: what sets their range, what the range cuts off, and which tensors share it."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from quaver.diagnosis.causes.advice import Remedy, calibrate_by, to_fp32
from quaver.diagnosis.causes.base import Cause
from quaver.diagnosis.causes.op_evidence import OpEvidence
from quaver.diagnosis.causes.registry import Stage, op_cause
from quaver.diagnosis.statistics.activations import Activation
from quaver.diagnosis.statistics.cells import Doubles
from quaver.formatting import first_names, number, percent, times
from quaver.introspection import ActivationContext
from quaver.mask_values import MAX_MASK_VALUES, MIN_MASK_STEPS, MIN_MASK_VALUE, STEPS

# The thresholds are judgement, checked on models with planted causes (`benchmarks/planted.py`).
# A channel is an outlier if its reach is this multiple of the median channel's, and that uses fewer steps than this.
MIN_OUTLIER_RATIO, FEW_STEPS = 8.0, 16.0
# Samples set a range alone if they are at most this part of all, and reach this multiple of the median sample.
MAX_FEW_PART, MIN_SAMPLE_RATIO = 0.02, 4.0
# Another calibration method helps if its range ends below this multiple of the median sample's reach.
MAX_METHOD_RATIO = 8.0
# Fewer samples than this do not show which sample is typical.
MIN_SAMPLES = 16
# Clipping is the cause if it makes this part of the error.
MIN_CLIPPED_PART = 0.5
# A tensor that uses fewer of its steps (255 in 8 bits) than this suffers from a shared scale.
MIN_SHARED_STEPS = 8.0
# The weight of a cause that leaves nothing of a tensor: an error of 100 %.
RUINED_WEIGHT = 1.0

_WRITERS_AND_READERS = "keep all that write or read this tensor in fp32"


@op_cause(Stage.ACTIVATIONS)
def sentinels(op: OpEvidence) -> Iterator[Cause]:
    """Find values that stand for infinity, as in masks. A range that includes them leaves no steps for the others."""
    activation = op.record.output
    histogram = activation.histogram
    if histogram is None or not MIN_MASK_VALUE <= activation.reach < math.inf:
        return
    filled = np.flatnonzero(histogram.counts)
    widest_gap = int(np.diff(filled).max(initial=0))
    if filled.size > 2 * MAX_MASK_VALUES or widest_gap < len(histogram.counts) * MIN_MASK_STEPS // STEPS:
        return
    extreme = activation.low if -activation.low > activation.high else activation.high
    observation = f"its output holds {number(extreme)}, which stands for infinity, next to real values"
    if not op.precision.quantized:
        yield op.cause("sentinel", f"{observation}: it stays in fp32, because no range has steps for both.", weight=0.0)
        return
    if op.context.writes is None:
        return
    step = number(float(op.context.writes.parameters.scale))
    sentence = f"{observation}. One range over both has steps of {step}, so all real values fall into one step."
    words = "keep it in fp32, and what reads it up to the Softmax"
    names = op.ops_around(op.context.writes)
    yield op.cause("sentinel", sentence, [to_fp32(names, words)], weight=RUINED_WEIGHT)


@op_cause(Stage.ACTIVATIONS)
def outlier_channels(op: OpEvidence) -> Iterator[Cause]:
    """Find a channel that sets the scale for all others."""
    if not op.is_bad:
        return
    for which, tensor, activation in op.tensors():
        outlier = _outlier(activation, float(tensor.parameters.scale))
        if outlier is None:
            continue
        channel, reach, median, steps = outlier
        ops = op.ops_around(tensor)
        sentence = (
            f"channel {channel} of its {which} reaches {number(reach)}, {times(reach / median)} as far as the median "
            f"channel ({number(median)}). Activations have one scale for all channels, so the median channel uses "
            f"{number(steps)} of {tensor.parameters.steps} steps.{_milder_range(op, tensor, median)}"
        )
        words = "keep it in fp32" if ops == [op.name] else _WRITERS_AND_READERS
        yield op.cause("outlier_channel", sentence, [to_fp32(ops, words)])
        return


def _outlier(activation: Activation, scale: float) -> tuple[int, float, float, float] | None:
    """Return an outlier channel, its reach, the median channel's reach, and the steps that the latter uses."""
    reach = activation.channel_reach
    nonzero = reach > 0
    if nonzero.sum() < 2 or not np.isfinite(reach).all():
        return None
    channel, median = int(np.argmax(reach)), _median(reach[nonzero])
    steps = _in_steps(_median((activation.channel_high - activation.channel_low)[nonzero]), scale)
    if reach[channel] < MIN_OUTLIER_RATIO * median or steps > FEW_STEPS:
        return None
    return channel, float(reach[channel]), median, steps


def _median(values: Doubles) -> float:
    """Return the lower median."""
    return float(np.quantile(values, 0.5, method="lower"))


def _milder_range(op: OpEvidence, tensor: ActivationContext, median: float) -> str:
    """Return a sentence about another calibration method that would cut the outlier off; empty if there is none."""
    low, high = tensor.parameters.limits
    half = (high - low) / 2
    names = _deciding(op, tensor)
    spans = {
        method: high - low
        for method, (low, high) in tensor.ranges.items()
        if high - low < half and all(op.allowed.allows(name, {"calibration": method}) for name in names)
    }
    method = min(spans, key=lambda name: spans[name], default=None)
    if method is None or spans[method] < median:
        return ""
    low, high = tensor.ranges[method]
    return f" Calibration by {method} would cut the range to {number(low)} .. {number(high)}, and the outlier with it."


@op_cause(Stage.ACTIVATIONS)
def few_samples(op: OpEvidence) -> Iterator[Cause]:
    """Find a few samples that set the range for all others."""
    if not op.is_bad:
        return
    for which, tensor, activation in sorted(op.tensors(), key=lambda entry: -entry[2].excess):
        numbers = _outlier_samples(activation, op.samples)
        if numbers is None or max(map(abs, tensor.parameters.limits)) < activation.reach / 2:
            continue
        who = f"{len(numbers)} of {op.samples} samples (numbers {first_names(numbers)}) set"
        who = who if len(numbers) > 1 else f"1 of {op.samples} samples, number {numbers[0]}, sets"
        sentence = (
            f"{who} the range of its {which}, which reaches {number(activation.reach)}; half of the samples stay below "
            f"{number(activation.usual_reach)}."
        )
        remedies = [
            *_other_method(op, tensor, activation.usual_reach),
            to_fp32(op.ops_around(tensor), _WRITERS_AND_READERS),
        ]
        which = "it" if len(numbers) == 1 else "them"
        before = f"leave {which} out of calibration if {'it is' if which == 'it' else 'they are'} not typical, or "
        yield op.cause("few_samples", sentence, remedies, before=before)
        return


def _outlier_samples(activation: Activation, samples: int) -> list[str] | None:
    """Return the numbers of the samples that reach much further than the median one, if they are few."""
    usual, count = activation.usual_reach, activation.beyond(activation.reach / 2)
    few = 0 < count <= min(max(1, int(MAX_FEW_PART * samples)), len(activation.furthest))
    if samples < MIN_SAMPLES or not few or not usual > 0 or activation.reach < MIN_SAMPLE_RATIO * usual:
        return None
    return [str(sample) for _, sample in activation.furthest[:count]]


def _other_method(op: OpEvidence, tensor: ActivationContext, usual: float) -> Iterator[Remedy]:
    """Yield calibration by another method whose range leaves such samples out, the closest range first."""
    current = op.choice.calibration if op.choice is not None else ""
    reaches = {method: max(-low, high) for method, (low, high) in tensor.ranges.items() if method != current}
    fits = {name: reach for name, reach in reaches.items() if usual <= reach < MAX_METHOD_RATIO * usual}
    for method, reach in sorted(fits.items(), key=lambda entry: entry[1]):
        words = f"calibrate by {method}, which ends the range at {number(reach)}"
        yield calibrate_by(_deciding(op, tensor), method, words)


def _deciding(op: OpEvidence, tensor: ActivationContext) -> list[str]:
    """Return the op that decides how a tensor is quantized: its writer, or else the reader."""
    return [tensor.origin or op.name]


@op_cause(Stage.ACTIVATIONS)
def clipped(op: OpEvidence) -> Iterator[Cause]:
    """Find a range that cuts off important values."""
    if not op.is_bad:
        return
    for which, tensor, activation in op.tensors():
        if not activation.clipped or not activation.squares > 0:
            continue
        error = activation.clipped_noise / activation.squares
        part = min(error / op.record.error, 1.0)
        if part < MIN_CLIPPED_PART:
            continue
        method = op.choice.calibration if op.choice is not None else ""
        by = f"calibration by {method}" if method else "its calibration"
        sentence = (
            f"{by} ends the range of its {which} at {_range(tensor)}, but values go from "
            f"{number(activation.low)} to {number(activation.high)}: "
            f"{percent(activation.clipped / activation.count)} of them are cut off, an error of "
            f"{percent(error)} of the signal."
        )
        before, remedies = "", [to_fp32(op.ops_around(tensor), _WRITERS_AND_READERS)]
        if method in ("", "minmax"):
            before, remedies = "Calibrate with more samples: these values were not among them", []
        elif _outlier(activation, (activation.high - activation.low) / tensor.parameters.steps) is not None:
            before = "The full range would leave the other channels too few steps: "
        elif (numbers := _outlier_samples(activation, op.samples)) is not None:
            before = (
                f"Only sample number {first_names(numbers)} exceeds half of that: if it is not typical, ignore this"
            )
            remedies = []
        else:
            remedies.insert(0, calibrate_by(_deciding(op, tensor), "minmax", "calibrate by minmax"))
        yield op.cause("clipped", sentence, remedies, before=before)
        return


@op_cause(Stage.ACTIVATIONS, replaces=["outlier_channel"])
def shared_scale(op: OpEvidence) -> Iterator[Cause]:
    """Find a tensor that has to share the scale of another one."""
    if not op.precision.quantized:
        return
    for which, tensor, activation in op.tensors():
        steps = _steps(activation, tensor)
        if tensor.moved and steps < MIN_SHARED_STEPS and op.is_bad:
            through = " and ".join(dict.fromkeys(tensor.moved))
            sentence = (
                f"its {which} comes through {through}, which leaves it the scale of what went in "
                f"({_range(tensor)}); it goes from {number(activation.low)} to "
                f"{number(activation.high)}, and uses {number(steps)} of {tensor.parameters.steps} steps."
            )
            yield op.cause("shared_scale", sentence, [to_fp32(op.ops_around(tensor), _WRITERS_AND_READERS)])
            return
        if tensor.forced not in ("", op.name) and steps < MIN_SHARED_STEPS and op.is_bad:
            sentence = (
                f"its {which} has to take the scale of {tensor.forced}, which joins it with others "
                f"({_range(tensor)}); it goes from {number(activation.low)} to "
                f"{number(activation.high)}, and uses {number(steps)} of {tensor.parameters.steps} steps."
            )
            yield op.cause("shared_scale", sentence, [to_fp32([tensor.forced], f"keep {tensor.forced} in fp32")])
            return
    yield from _joined(op)


def _joined(op: OpEvidence) -> Iterator[Cause]:
    """Find two inputs of such different size that the scale of the result suits only one."""
    result = op.context.writes
    parts = [(which, tensor, activation) for which, tensor, activation in op.tensors() if which.startswith("input ")]
    kind = op.op.kind.lower()
    if result is None or len(parts) < 2 or not ("concat" in kind or ("add" in kind and op.is_bad)):
        return
    largest = max(parts, key=lambda part: part[2].reach)
    for which, tensor, activation in parts:
        steps = _steps(activation, result)
        if activation.reach > 0 and steps < MIN_SHARED_STEPS and activation is not largest[2]:
            sentence = (
                f"its {which}{_origin(tensor)} reaches {number(activation.reach)}, and its "
                f"{largest[0]}{_origin(largest[1])} "
                f"{number(largest[2].reach)}; the result has one scale, in which the former uses {number(steps)} of "
                f"{result.parameters.steps} steps."
            )
            names = [op.name, *op.readers.get(op.name, ())]
            words = f"keep it{' and what reads it' if len(names) > 1 else ''} in fp32"
            weight = max(op.record.error, 1 / max(steps, 1.0))
            yield op.cause("shared_scale", sentence, [to_fp32(names, words)], weight=weight)
            return


def _steps(activation: Activation, tensor: ActivationContext) -> float:
    """Return how many steps of a tensor's scale an activation spans."""
    return _in_steps(activation.high - activation.low, float(tensor.parameters.scale)) if activation.count else math.inf


def _in_steps(span: float, scale: float) -> float:
    """Return a span in steps; infinite for a scale of zero, which a file may hold."""
    return span / scale if scale else math.inf


def _range(tensor: ActivationContext) -> str:
    low, high = tensor.parameters.limits
    return f"{number(low)} .. {number(high)}"


def _origin(tensor: ActivationContext) -> str:
    return f" (from {tensor.origin})" if tensor.origin else ""
