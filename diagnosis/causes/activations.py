"""Causes that lie in activations: what sets their range, what it cuts off, and who has to share it."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from quaver.diagnosis.causes.advice import Remedy, calibrate_by, to_fp32
from quaver.diagnosis.causes.base import Cause
from quaver.diagnosis.causes.op_evidence import OpEvidence
from quaver.diagnosis.statistics.activations import Activation
from quaver.diagnosis.statistics.cells import Doubles
from quaver.diagnosis.text import listed, number, percent, times
from quaver.introspection import ActivationContext
from quaver.mask_values import FAR, FAR_STEPS, PLACES, STEPS

# A channel stands out if it reaches so many times as far as the median one, and leaves that less than so many steps.
_STANDS_OUT, _FEW_STEPS = 8.0, 16.0
# Few samples set a range if they are this part of all at most, and reach so many times as far as the median one.
_FEW, _FURTHER = 0.02, 4.0
# Another method helps if it ends the range at less than so many times the reach of the median sample.
_CURES = 8.0
# Samples needed to say so.
_ENOUGH_SAMPLES = 16
# Clipping is to blame if it makes this part of the error.
_CLIPS = 0.5
# A tensor that uses so few of its steps (255 in 8 bits) suffers from having to share them.
_SHARED_STEPS = 8.0
# The weight of a cause that leaves nothing of a tensor, whatever its error is a part of.
_RUINED = 1.0

_BOTH_SIDES = "keep all that write or read this tensor in fp32"


def outlier_channels(suspect: OpEvidence) -> Iterator[Cause]:
    """A channel that sets the scale for all others."""
    if not suspect.bad:
        return
    for which, tensor, seen in suspect.tensors():
        found = _outlier(seen, float(tensor.parameters.scale))
        if found is None:
            continue
        channel, reach, median, steps = found
        ops = suspect.around(tensor)
        sentence = (
            f"channel {channel} of its {which} reaches {number(reach)}, {times(reach / median)} as far as the median "
            f"channel ({number(median)}). Activations have one scale for all channels, so the median channel is left "
            f"{number(steps)} of {tensor.parameters.steps} steps.{_milder(suspect, tensor, median)}"
        )
        words = "keep it in fp32" if ops == [suspect.name] else _BOTH_SIDES
        yield suspect.cause("outlier_channel", sentence, [to_fp32(ops, words)])
        return


def _outlier(seen: Activation, scale: float) -> tuple[int, float, float, float] | None:
    """A channel that stands out: its number, its reach, the median channel's, and the steps that this is left."""
    reach = seen.channel_reach
    alive = reach > 0
    if alive.sum() < 2 or not np.isfinite(reach).all():
        return None
    channel, median = int(np.argmax(reach)), _median(reach[alive])
    steps = _in_steps(_median((seen.channel_high - seen.channel_low)[alive]), scale)
    if reach[channel] < _STANDS_OUT * median or steps > _FEW_STEPS:
        return None
    return channel, float(reach[channel]), median, steps


def _median(values: Doubles) -> float:
    """What half of the values do not exceed; between two halves that are far apart it takes the lower one."""
    return float(np.quantile(values, 0.5, method="lower"))


def _milder(suspect: OpEvidence, tensor: ActivationContext, median: float) -> str:
    """Whether another calibration method, that the rules allow, would cut the outlier off."""
    low, high = tensor.parameters.limits
    half = (high - low) / 2
    names = _deciding(suspect, tensor)
    spans = {
        method: high - low
        for method, (low, high) in tensor.ranges.items()
        if high - low < half and all(suspect.leeway.allows(name, {"calibration": method}) for name in names)
    }
    method = min(spans, key=lambda name: spans[name], default=None)
    if method is None or spans[method] < median:
        return ""
    low, high = tensor.ranges[method]
    return f" Calibration by {method} would cut the range to {number(low)} .. {number(high)}, and the outlier with it."


def few_samples(suspect: OpEvidence) -> Iterator[Cause]:
    """A handful of samples that set the range for all others."""
    if not suspect.bad:
        return
    for which, tensor, seen in sorted(suspect.tensors(), key=lambda found: -found[2].excess):
        numbers = _lonely(seen, suspect.samples)
        if numbers is None or max(map(abs, tensor.parameters.limits)) < seen.reach / 2:
            continue
        who = f"{len(numbers)} of {suspect.samples} samples (numbers {listed(numbers)}) set"
        who = who if len(numbers) > 1 else f"1 of {suspect.samples} samples, number {numbers[0]}, sets"
        sentence = (
            f"{who} the range of its {which}, which reaches {number(seen.reach)}; half of the samples stay below "
            f"{number(seen.usual_reach)}."
        )
        remedies = [*_other_method(suspect, tensor, seen.usual_reach), to_fp32(suspect.around(tensor), _BOTH_SIDES)]
        which = "it" if len(numbers) == 1 else "them"
        before = f"leave {which} out of calibration if {'it is' if which == 'it' else 'they are'} not typical, or "
        yield suspect.cause("few_samples", sentence, remedies, before=before)
        return


def _lonely(seen: Activation, samples: int) -> list[str] | None:
    """The numbers of the samples that reach much further than the usual one, if they are few."""
    usual, count = seen.usual_reach, seen.beyond(seen.reach / 2)
    few = 0 < count <= min(max(1, int(_FEW * samples)), len(seen.furthest))
    if samples < _ENOUGH_SAMPLES or not few or not usual > 0 or seen.reach < _FURTHER * usual:
        return None
    return [str(sample) for _, sample in seen.furthest[:count]]


def _other_method(suspect: OpEvidence, tensor: ActivationContext, usual: float) -> Iterator[Remedy]:
    """Choose the range in a way that passes over such samples, if one of the methods does; the closest one first."""
    current = suspect.pick.calibration if suspect.pick is not None else ""
    reaches = {method: max(-low, high) for method, (low, high) in tensor.ranges.items() if method != current}
    fits = {name: reach for name, reach in reaches.items() if usual <= reach < _CURES * usual}
    for method, reach in sorted(fits.items(), key=lambda entry: entry[1]):
        words = f"calibrate by {method}, which ends the range at {number(reach)}"
        yield calibrate_by(_deciding(suspect, tensor), method, words)


def _deciding(suspect: OpEvidence, tensor: ActivationContext) -> list[str]:
    """Who writes a tensor decides how it is quantized; if that is no op, those who read it."""
    return [tensor.origin or suspect.name]


def clipped(suspect: OpEvidence) -> Iterator[Cause]:
    """A range that cuts off what matters."""
    if not suspect.bad:
        return
    for which, tensor, seen in suspect.tensors():
        if not seen.clipped or not seen.squares > 0:
            continue
        error = seen.clipped_noise / seen.squares
        part = min(error / suspect.record.error, 1.0)
        if part < _CLIPS:
            continue
        method = suspect.pick.calibration if suspect.pick is not None else ""
        by = f"calibration by {method}" if method else "its calibration"
        sentence = (
            f"{by} ends the range of its {which} at {_range(tensor)}, but values go from "
            f"{number(seen.low)} to {number(seen.high)}: {percent(seen.clipped / seen.count)} of them are cut off, "
            f"which takes {percent(error)} of the signal."
        )
        before, remedies = "", [to_fp32(suspect.around(tensor), _BOTH_SIDES)]
        if method in ("", "minmax"):
            before, remedies = "Calibrate with more samples: these values were not among them", []
        elif _outlier(seen, (seen.high - seen.low) / tensor.parameters.steps) is not None:
            before = "The whole range would leave the other channels too few steps: "
        elif (numbers := _lonely(seen, suspect.samples)) is not None:
            before = f"Only sample number {listed(numbers)} goes beyond half of that: if it is not typical, all is well"
            remedies = []
        else:
            remedies.insert(0, calibrate_by(_deciding(suspect, tensor), "minmax", "calibrate by minmax"))
        yield suspect.cause("clipped", sentence, remedies, before=before)
        return


def shared_scale(suspect: OpEvidence) -> Iterator[Cause]:
    """A tensor that has to live with the scale of another one."""
    if not suspect.precision.quantized:
        return
    for which, tensor, seen in suspect.tensors():
        steps = _steps(seen, tensor)
        if tensor.moved and steps < _SHARED_STEPS and suspect.bad:
            through = " and ".join(dict.fromkeys(tensor.moved))
            sentence = (
                f"its {which} comes through {through}, which leaves it the scale of what went in "
                f"({_range(tensor)}); it goes from {number(seen.low)} to "
                f"{number(seen.high)}, and uses {number(steps)} of {tensor.parameters.steps} steps."
            )
            yield suspect.cause("shared_scale", sentence, [to_fp32(suspect.around(tensor), _BOTH_SIDES)])
            return
        if tensor.forced not in ("", suspect.name) and steps < _SHARED_STEPS and suspect.bad:
            sentence = (
                f"its {which} has to take the scale of {tensor.forced}, which joins it with others "
                f"({_range(tensor)}); it goes from {number(seen.low)} to "
                f"{number(seen.high)}, and uses {number(steps)} of {tensor.parameters.steps} steps."
            )
            yield suspect.cause("shared_scale", sentence, [to_fp32([tensor.forced], f"keep {tensor.forced} in fp32")])
            return
    yield from _joined(suspect)


def _joined(suspect: OpEvidence) -> Iterator[Cause]:
    """Two inputs whose sizes differ so much that the scale of the result suits only one."""
    result = suspect.context.writes
    parts = [(which, tensor, seen) for which, tensor, seen in suspect.tensors() if which.startswith("input ")]
    kind = suspect.op.kind.lower()
    if result is None or len(parts) < 2 or not ("concat" in kind or ("add" in kind and suspect.bad)):
        return
    largest = max(parts, key=lambda part: part[2].reach)
    for which, tensor, seen in parts:
        steps = _steps(seen, result)
        if seen.reach > 0 and steps < _SHARED_STEPS and seen is not largest[2]:
            sentence = (
                f"its {which}{_from(tensor)} reaches {number(seen.reach)}, and its {largest[0]}{_from(largest[1])} "
                f"{number(largest[2].reach)}; the result has one scale, in which the former is left {number(steps)} of "
                f"{result.parameters.steps} steps."
            )
            names = [suspect.name, *suspect.readers.get(suspect.name, ())]
            words = f"keep it{' and what reads it' if len(names) > 1 else ''} in fp32"
            weight = max(suspect.record.error, 1 / max(steps, 1.0))
            yield suspect.cause("shared_scale", sentence, [to_fp32(names, words)], weight=weight)
            return


def _steps(seen: Activation, tensor: ActivationContext) -> float:
    """How many steps of a tensor's scale an activation reaches over."""
    return _in_steps(seen.high - seen.low, float(tensor.parameters.scale)) if seen.count else math.inf


def _in_steps(span: float, scale: float) -> float:
    """A file may hold a scale of zero."""
    return span / scale if scale else math.inf


def _range(tensor: ActivationContext) -> str:
    low, high = tensor.parameters.limits
    return f"{number(low)} .. {number(high)}"


def _from(tensor: ActivationContext) -> str:
    return f" (from {tensor.origin})" if tensor.origin else ""


def sentinels(suspect: OpEvidence) -> Iterator[Cause]:
    """Values that stand for infinity, as masks hold them: a range over them leaves the others no steps."""
    seen = suspect.record.output
    histogram = seen.histogram
    if histogram is None or not FAR <= seen.reach < math.inf:
        return
    filled = np.flatnonzero(histogram.counts)
    apart = int(np.diff(filled).max(initial=0))
    if filled.size > 2 * PLACES or apart < len(histogram.counts) * FAR_STEPS // STEPS:
        return
    end = seen.low if -seen.low > seen.high else seen.high
    what = f"its output holds {number(end)}, which stands for infinity, beside real values"
    if not suspect.precision.quantized:
        yield suspect.cause("sentinel", f"{what}: it stays in fp32, for no range has steps for both.", weight=0.0)
        return
    if suspect.context.writes is None:
        return
    step = number(float(suspect.context.writes.parameters.scale))
    sentence = f"{what}. One range over both has steps of {step}, so that all real values fall into one."
    words = "keep it in fp32, and what reads it up to the Softmax"
    names = suspect.around(suspect.context.writes)
    yield suspect.cause("sentinel", sentence, [to_fp32(names, words)], weight=_RUINED)


# Asked of each op that is looked at. A new cause is a function, and its name in this list or in that on weights.
FINDERS = (sentinels, outlier_channels, few_samples, clipped, shared_scale)
