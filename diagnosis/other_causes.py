"""Causes that lie in neither weights nor ranges: values that are no numbers, time, and the unexplained."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from quaver.diagnosis.cause import Cause, to_fp32
from quaver.diagnosis.suspects import Suspect
from quaver.diagnosis.wording import listed, number, percent, seconds

# Slower by this factor at least, by so many seconds, and by this part of the whole float model: else it is noise.
_SLOWER, _SECONDS, _PART = 1.2, 20e-6, 0.005
# An error is amplified if it is this part of the output, and so many times what comes in and what the op adds.
_AMPLIFIED, _ENLARGED = 0.1, 20.0


def not_finite(suspects: Sequence[Suspect]) -> Iterator[Cause]:
    """The first op whose values are no numbers; those behind it have them from there."""
    for suspect in suspects:
        seen = suspect.record.output
        if seen.strange:
            sentence = (
                f"it writes NaN or infinity in the float model already: {seen.strange:,} of {seen.count:,} values, "
                f"first in sample {seen.first_strange}."
            )
            yield Cause(suspect.name, "not_finite", sentence, "Mend the float model or the data", {}, math.inf)
            break
    for suspect in suspects:
        strange = max(suspect.record.local.strange, suspect.record.whole.strange)
        if strange and not suspect.record.output.strange:
            sentence = (
                f"its output is NaN or infinite in the quantized model, in {strange:,} of "
                f"{suspect.record.whole.count or suspect.record.local.count:,} values, and finite in the float model."
            )
            between = f" ({', '.join(suspect.inside.between)})" if suspect.inside.between else ""
            advice = (
                f"Rounding pushes values out of what a function before it{between} takes. Keep what is there in fp32"
            )
            yield Cause(suspect.name, "not_finite", sentence, advice, to_fp32(_behind(suspect, suspects)), math.inf)
            break


def _behind(suspect: Suspect, suspects: Sequence[Suspect]) -> list[str]:
    """The op and those before it that run in int8."""
    int8 = {other.name for other in suspects if other.precision == "int8"}
    return [name for name in (suspect.name, *suspect.inside.before) if name in int8]


def amplified(suspects: Sequence[Suspect]) -> Iterator[Cause]:
    """Ops that get far more error than the ops before them make: a float function in between enlarges it."""
    errors = {suspect.name: suspect.record.whole.relative for suspect in suspects}
    for suspect in suspects:
        inside, now = suspect.inside, errors[suspect.name]
        before = [errors[name] for name in inside.before if name in errors]
        own = suspect.record.error if suspect.record.error > 0 else 0.0
        if not before or not inside.between or not now > _AMPLIFIED or not math.isfinite(now):
            continue
        most = max(before)
        if now > _ENLARGED * (most + own):
            sentence = (
                f"its output is off by {percent(now)} of its power in the running model, though the ops before it are "
                f"off by {percent(most)} at most, and it adds {percent(own)}: the float functions in between "
                f"({listed(list(inside.between), 6)}) enlarge the error."
            )
            names = [name for name in _behind(suspect, suspects) if name != suspect.name]
            yield Cause(suspect.name, "amplified", sentence, "Keep the ops before it in fp32", to_fp32(names), now)


def no_samples(suspects: Sequence[Suspect]) -> Iterator[Cause]:
    """Ops that no sample went through."""
    for suspect in suspects:
        if suspect.precision == "int8" and suspect.samples and not suspect.record.output.count:
            sentence = "no value went through it in any sample, so its range is not known."
            yield Cause(suspect.name, "no_samples", sentence, "Calibrate with samples that reach it", {}, 0.0)


def slower(
    suspects: Sequence[Suspect], fp32: Sequence[Mapping[str, float]], int8: Sequence[Mapping[str, float]]
) -> Iterator[Cause]:
    """Ops that int8 makes slower. Each side was measured several times; the verdict must hold for all of them."""
    if not fp32 or not int8:
        return
    total = min(sum(times.values()) for times in fp32)
    for suspect in suspects:
        name = suspect.name
        if suspect.precision != "int8" or not all(name in times for times in (*fp32, *int8)):
            continue
        before, after = max(times[name] for times in fp32), min(times[name] for times in int8)
        if after > before * _SLOWER and after - before > max(_SECONDS, _PART * total):
            ratio = f"{after / before:.1f}x slower" if before > 0 else "slower"
            sentence = f"it takes {seconds(after)} in int8 and {seconds(before)} in fp32 ({ratio})."
            yield Cause(name, "slower", sentence, "Keep it in fp32", to_fp32([name]), (after - before) / total)


def unexplained(suspect: Suspect) -> Cause:
    """A bad op of which nothing shows why."""
    decibels = suspect.record.local.figures()["sqnr"]
    sentence = (
        f"its int8 output is off by {percent(suspect.record.error)} of its power (SQNR {number(decibels)} dB over all "
        "values), and neither its weights nor its ranges show why."
    )
    rules = to_fp32([suspect.name])
    return Cause(suspect.name, "unexplained", sentence, "Keep it in fp32", rules, suspect.record.error)
