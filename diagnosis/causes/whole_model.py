"""Causes that lie in neither weights nor ranges: values that are no numbers, time, and the unexplained."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from quaver.diagnosis.causes.advice import to_fp32
from quaver.diagnosis.causes.base import Cause
from quaver.diagnosis.causes.op_evidence import OpEvidence
from quaver.diagnosis.text import listed, number, percent, seconds

# Slower by this factor at least, by so many seconds, and by this part of the whole float model: else it is noise.
_SLOWER, _SECONDS, _PART = 1.2, 20e-6, 0.005
# An error is amplified if it is this part of the output, and so many times what comes in and what the op adds.
_AMPLIFIED, _ENLARGED = 0.1, 20.0


def not_finite(suspects: Sequence[OpEvidence]) -> Iterator[Cause]:
    """The first op whose values are no numbers; those behind it have them from there."""
    for suspect in suspects:
        seen = suspect.record.output
        if seen.not_finite:
            sentence = (
                f"it writes NaN or infinity in the float model already: {seen.not_finite:,} of {seen.count:,} values, "
                f"first in sample {seen.first_not_finite}."
            )
            yield suspect.cause("not_finite", sentence, before="Mend the float model or the data", weight=math.inf)
            break
    for suspect in suspects:
        count = max(suspect.record.local.not_finite, suspect.record.cumulative.not_finite)
        if count and not suspect.record.output.not_finite:
            sentence = (
                f"its output is NaN or infinite in the quantized model, in {count:,} of "
                f"{suspect.record.cumulative.count or suspect.record.local.count:,} values, and finite in the float "
                "model."
            )
            between = f" ({', '.join(suspect.context.between)})" if suspect.context.between else ""
            before = f"Rounding pushes values out of what a function before it{between} takes: "
            remedy = to_fp32(_behind(suspect, suspects), "keep what is there in fp32")
            yield suspect.cause("not_finite", sentence, [remedy], before=before, weight=math.inf)
            break


def _behind(suspect: OpEvidence, suspects: Sequence[OpEvidence]) -> list[str]:
    """The op and those before it that run in reduced precision."""
    quantized = {other.name for other in suspects if other.precision.quantized}
    return [name for name in (suspect.name, *suspect.context.before) if name in quantized]


def amplified(suspects: Sequence[OpEvidence]) -> Iterator[Cause]:
    """Ops that get far more error than the ops before them make: a float function in between enlarges it."""
    errors = {suspect.name: suspect.record.cumulative.relative for suspect in suspects}
    for suspect in suspects:
        context, now = suspect.context, errors[suspect.name]
        before = [errors[name] for name in context.before if name in errors]
        own = suspect.record.error if suspect.record.error > 0 else 0.0
        if not before or not context.between or not now > _AMPLIFIED or not math.isfinite(now):
            continue
        most = max(before)
        if now > _ENLARGED * (most + own):
            sentence = (
                f"its output is off by {percent(now)} of its power in the running model, though the ops before it are "
                f"off by {percent(most)} at most, and it adds {percent(own)}: the float functions in between "
                f"({listed(list(context.between), 6)}) enlarge the error."
            )
            names = [name for name in _behind(suspect, suspects) if name != suspect.name]
            remedy = to_fp32(names, "keep the ops before it in fp32")
            yield suspect.cause("amplified", sentence, [remedy], weight=now)


def no_samples(suspects: Sequence[OpEvidence]) -> Iterator[Cause]:
    """Ops that no sample went through."""
    for suspect in suspects:
        if suspect.precision.quantized and suspect.samples and not suspect.record.output.count:
            sentence = "no value went through it in any sample, so its range is not known."
            yield suspect.cause("no_samples", sentence, before="Calibrate with samples that reach it", weight=0.0)


def slower(
    suspects: Sequence[OpEvidence], fp32: Sequence[Mapping[str, float]], quantized: Sequence[Mapping[str, float]]
) -> Iterator[Cause]:
    """Ops that are slower than in fp32. Each side was measured several times; the verdict must hold for all of them."""
    if not fp32 or not quantized:
        return
    total = min(sum(times.values()) for times in fp32)
    for suspect in suspects:
        name = suspect.name
        if not suspect.precision.quantized or not all(name in times for times in (*fp32, *quantized)):
            continue
        before, after = max(times[name] for times in fp32), min(times[name] for times in quantized)
        if after > before * _SLOWER and after - before > max(_SECONDS, _PART * total):
            ratio = f"{after / before:.1f}x slower" if before > 0 else "slower"
            sentence = f"it takes {seconds(after)} in {suspect.precision} and {seconds(before)} in fp32 ({ratio})."
            weight = (after - before) / total if total else math.inf
            yield suspect.cause("slower", sentence, [to_fp32([name])], weight=weight)


def unexplained(suspect: OpEvidence) -> Cause:
    """A bad op of which nothing shows why."""
    decibels = suspect.record.local.figures()["sqnr"]
    sentence = (
        f"its {suspect.precision} output is off by {percent(suspect.record.error)} of its power (SQNR "
        f"{number(decibels)} dB over all values), and neither its weights nor its ranges show why."
    )
    return suspect.cause("unexplained", sentence, [to_fp32([suspect.name])])
