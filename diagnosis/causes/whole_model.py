"""Causes that need all ops: values that are not finite, amplified errors, slow ops and unexplained errors."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from quaver.diagnosis.causes.advice import to_fp32
from quaver.diagnosis.causes.base import Cause
from quaver.diagnosis.causes.op_evidence import ModelEvidence, OpEvidence
from quaver.diagnosis.causes.registry import Stage, model_cause, op_cause
from quaver.formatting import first_names, milliseconds, number, percent

# An op is slower if all three hold; smaller differences are noise of the profiler. Judgement: the ratio, the
# seconds, and the part of the whole float model's time.
MIN_SLOWDOWN, MIN_EXTRA_SECONDS, MIN_EXTRA_PART = 1.2, 20e-6, 0.005
# Judgement: an error is amplified if it is this part of the output's power and this multiple of what the ops before
# and the op itself add.
MIN_AMPLIFIED_ERROR, MIN_AMPLIFICATION = 0.1, 20.0


@model_cause()
def not_finite(model: ModelEvidence) -> Iterator[Cause]:
    """Find the first op with values that are not finite; ops behind it inherit them."""
    for op in model.ops:
        output = op.record.output
        if output.not_finite:
            sentence = (
                f"it already writes NaN or infinity in the float model: {output.not_finite:,} of {output.count:,} "
                f"values, first in sample {output.first_not_finite}."
            )
            yield op.cause("not_finite", sentence, before="Fix the float model or the data", weight=math.inf)
            break
    for op in model.ops:
        count = max(op.record.local.not_finite, op.record.cumulative.not_finite)
        if count and not op.record.output.not_finite:
            sentence = (
                f"its output is NaN or infinite in the quantized model, in {count:,} of "
                f"{op.record.cumulative.count or op.record.local.count:,} values, and finite in the float "
                "model."
            )
            between = f" ({', '.join(op.context.between)})" if op.context.between else ""
            before = f"Rounding pushes values out of the domain of a function before it{between}: "
            remedy = to_fp32(_quantized_ops_before(op, model.ops), "keep the ops there in fp32")
            yield op.cause("not_finite", sentence, [remedy], before=before, weight=math.inf)
            break


def _quantized_ops_before(op: OpEvidence, ops: Sequence[OpEvidence]) -> list[str]:
    """Return the op and the ops before it that are quantized."""
    quantized = {other.name for other in ops if other.precision.quantized}
    return [name for name in (op.name, *op.context.before) if name in quantized]


@model_cause()
def no_samples(model: ModelEvidence) -> Iterator[Cause]:
    """Find quantized ops that no sample went through."""
    for op in model.ops:
        if op.precision.quantized and op.samples and not op.record.output.count:
            sentence = "no value went through it in any sample, so its range is not known."
            yield op.cause("no_samples", sentence, before="Calibrate with samples that reach this op", weight=0.0)


@model_cause()
def amplified(model: ModelEvidence) -> Iterator[Cause]:
    """Find ops whose error is far larger than the errors before them: a float function in between amplifies it."""
    errors = {op.name: op.record.cumulative.relative for op in model.ops}
    for op in model.ops:
        context, now = op.context, errors[op.name]
        before = [errors[name] for name in context.before if name in errors]
        own = op.record.error if op.record.error > 0 else 0.0
        if not before or not context.between or not now > MIN_AMPLIFIED_ERROR or not math.isfinite(now):
            continue
        largest = max(before)
        if now > MIN_AMPLIFICATION * (largest + own):
            sentence = (
                f"its error in the running model is {percent(now)} of its output's power, but at most "
                f"{percent(largest)} at the ops before it, and it adds {percent(own)}: the float functions in between "
                f"({first_names(list(context.between), 6)}) amplify the error."
            )
            names = [name for name in _quantized_ops_before(op, model.ops) if name != op.name]
            remedy = to_fp32(names, "keep the ops before it in fp32")
            yield op.cause("amplified", sentence, [remedy], weight=now)


@model_cause(Stage.SPEED)
def slower(model: ModelEvidence) -> Iterator[Cause]:
    """Find ops that are slower than in fp32. The verdict must hold for all repetitions of the measurement."""
    fp32, quantized = model.fp32_seconds, model.quantized_seconds
    if not fp32 or not quantized:
        return
    total = min(sum(times.values()) for times in fp32)
    for op in model.ops:
        name = op.name
        if not op.precision.quantized or not all(name in times for times in (*fp32, *quantized)):
            continue
        before, after = (
            max(times[name] for times in fp32),
            min(times[name] for times in quantized),
        )
        if after > before * MIN_SLOWDOWN and after - before > max(MIN_EXTRA_SECONDS, MIN_EXTRA_PART * total):
            ratio = f"{after / before:.1f}x slower" if before > 0 else "slower"
            times_taken = f"{milliseconds(after * 1e3)} in {op.precision} and {milliseconds(before * 1e3)} in fp32"
            sentence = f"it takes {times_taken} ({ratio})."
            weight = (after - before) / total if total else math.inf
            yield op.cause("slower", sentence, [to_fp32([name])], weight=weight)


@op_cause(Stage.UNEXPLAINED)
def unexplained(op: OpEvidence) -> Iterator[Cause]:
    """Report a bad op without any other cause."""
    decibels = op.record.local.figures()["sqnr"]
    sentence = (
        f"the error of its {op.precision} output is {percent(op.record.error)} of its power (SQNR "
        f"{number(decibels)} dB over all values), and neither its weights nor its ranges explain it."
    )
    yield op.cause("unexplained", sentence, [to_fp32([op.name])])
