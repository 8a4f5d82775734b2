"""The result of `check`: a verdict for each limit, for the speed, for another processor, and for all of them."""

from __future__ import annotations

import enum
from dataclasses import asdict, dataclass

from quaver.formatting import milliseconds, plural, probability
from quaver.limit import loss_phrase, loss_range, loss_text
from quaver.types import PlainDict

# The error on another processor may be this many times the error here. Judgement: rounding of floats differs as well.
MAX_ERROR_RATIO = 1.25


class Verdict(enum.StrEnum):
    """The verdict on a model, or on one of its limits."""

    MET = "met"
    NOT_MET = "not met"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class LimitVerdict:
    """The verdict on one metric, on all samples or on a slice.

    Attributes:
        metric: its name; "score" if eval_func gives none.
        slice: the name of the slice; empty for all samples.
        verdict: met, not met, or inconclusive if the limit lies within the interval.
        baseline: the score of the float model.
        score: the score of the quantized model.
        loss: how much worse that is; a fraction of the baseline if `relative`.
        allowed: the allowed loss.
        relative: whether losses are fractions of the baseline.
        higher_is_better: False for scores that are errors.
        samples: how many samples were scored; 0 if eval_func returns one number.
        interval: the confidence interval of the loss on such data; None without scores of samples.
        confidence: the confidence that the loss on such data is within the limit; None without scores of samples.
    """

    metric: str
    slice: str
    verdict: Verdict
    baseline: float
    score: float
    loss: float
    allowed: float
    relative: bool
    higher_is_better: bool
    samples: int
    interval: tuple[float, float] | None
    confidence: float | None

    @property
    def name(self) -> str:
        """Return the name for people: "top1" or "top1 of cats"."""
        return f"{self.metric} of {self.slice}" if self.slice else self.metric

    def __str__(self) -> str:
        text = f"{self.name} {self.score:.6g} vs {self.baseline:.6g} in fp32: {loss_phrase(self.loss, self.relative)}"
        if self.interval is not None and self.confidence is not None:
            text += f" ({loss_range(*self.interval, self.relative)} on such data, from {self.samples} samples)"
        text += f", {loss_text(self.allowed, self.relative)} allowed: {self.verdict}"
        return (
            text if self.confidence is None else f"{text}; {probability(self.confidence)} confidence that it is within"
        )


@dataclass(frozen=True, slots=True)
class SpeedVerdict:
    """The speed of the quantized model compared with the float model, both interleaved.

    Attributes:
        verdict: not met if the model is slower than required by more than the error bar.
        faster_than: the required speed, as a multiple of the float model's.
        speedup: the measured speed, as a multiple of the float model's.
        fp32_ms: milliseconds of one inference of the float model.
        quantized_ms: milliseconds of one inference of the quantized model.
        spread: the error bar of the figures, as a fraction.
        threads: threads of one inference.
        batch: samples of one inference: 1, or the fixed batch of the model.
    """

    verdict: Verdict
    faster_than: float
    speedup: float
    fp32_ms: float
    quantized_ms: float
    spread: float
    threads: int
    batch: int = 1

    def __str__(self) -> str:
        return (
            f"speed {self.speedup:.2f}x fp32 ({milliseconds(self.quantized_ms)} vs {milliseconds(self.fp32_ms)}, "
            f"±{self.spread:.0%}, batch {self.batch}, {plural(self.threads, 'thread')}), "
            f"{self.faster_than:g}x required: {self.verdict}"
        )


@dataclass(frozen=True, slots=True)
class ProcessorVerdict:
    """The outputs of the quantized model on an emulated processor, compared with those on this one.

    Attributes:
        verdict: not met if the error there is more than `MAX_ERROR_RATIO` times the error here, or if a limit is not
            met there.
        cpu: the emulated processor.
        kind: which processors it stands for.
        samples: how many samples ran on the emulator; errors are of the first 256.
        native_error: the relative error of the outputs on this processor: the norm of their difference from the float
            model's, divided by the norm of the float model's.
        emulated_error: the same on the emulated processor.
        native_top1: the share of samples whose largest output is that of the float model; None if there is only one
            output value.
        emulated_top1: the same on the emulated processor.
        identical: whether all outputs are equal on both processors.
        limits: the verdict of each limit there; empty if eval_func was not run to its end.
    """

    verdict: Verdict
    cpu: str
    kind: str
    samples: int
    native_error: float
    emulated_error: float
    native_top1: float | None
    emulated_top1: float | None
    identical: bool
    limits: tuple[LimitVerdict, ...]

    def __str__(self) -> str:
        text = (
            f"on {self.cpu}, emulated ({self.kind}): relative output error {self.emulated_error:.3g} there, "
            f"{self.native_error:.3g} here"
        )
        if self.native_top1 is not None and self.emulated_top1 is not None:
            text += f"; top-1 as fp32 {self.emulated_top1:.1%} there, {self.native_top1:.1%} here"
        same = ", outputs identical" if self.identical else ""
        text += f" ({self.samples} samples{same}): {self.verdict}"
        return "\n".join([text, *(f"on {self.cpu}: {limit}" for limit in self.limits)])


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The verdict on a quantized model, and the figures behind it.

    Attributes:
        verdict: not met if any part is not met, else inconclusive if any part is.
        limits: the verdict of each limit, the worst first.
        speed: the verdict on the speed; None if none was required.
        confidence: the joint confidence of the intervals; None if only scores were compared.
        fp32_size: bytes of the float model.
        quantized_size: bytes of the quantized model.
        processor: the verdict on an emulated processor; None if none was named.
    """

    verdict: Verdict
    limits: tuple[LimitVerdict, ...]
    speed: SpeedVerdict | None
    confidence: float | None
    fp32_size: int
    quantized_size: int
    processor: ProcessorVerdict | None = None

    @property
    def met(self) -> bool:
        """Return whether every part is met."""
        return self.verdict is Verdict.MET

    def to_dict(self) -> PlainDict:
        """Return the result as builtins for JSON; `docs/check.schema.json` describes them."""
        plain = asdict(self)
        for part in (plain, plain["processor"] or {"limits": ()}):
            part["limits"] = list(part["limits"])
            for limit in part["limits"]:
                limit["verdict"] = str(limit["verdict"])
                limit["interval"] = None if limit["interval"] is None else list(limit["interval"])
        for name in ("speed", "processor"):
            if plain[name] is not None:
                plain[name]["verdict"] = str(plain[name]["verdict"])
        return {**plain, "verdict": str(self.verdict)}

    def __str__(self) -> str:
        parts = [part for part in (self.speed, self.processor) if part is not None]
        return "\n".join(map(str, [self.verdict, *self.limits, *parts]))


def together(verdicts: list[Verdict]) -> Verdict:
    """Return the worst of several verdicts."""
    for worst in (Verdict.NOT_MET, Verdict.INCONCLUSIVE):
        if worst in verdicts:
            return worst
    return Verdict.MET
