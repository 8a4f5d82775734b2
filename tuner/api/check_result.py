"""What `check` found: a verdict for each limit and for the speed, and one for all of them."""

from __future__ import annotations

import enum
from dataclasses import asdict, dataclass

from quaver.formatting import milliseconds, probability
from quaver.limit import loss_phrase, loss_range, loss_text
from quaver.types import PlainDict

# Answers on another processor may be off by so much more than on this one: rounding of floats differs, too.
MAX_ERROR_RATIO = 1.25


class Verdict(enum.StrEnum):
    """What can be said of a model."""

    MET = "met"
    NOT_MET = "not met"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class LimitVerdict:
    """What one metric loses, on all samples or on a slice of them.

    Attributes:
        metric: its name; "score" if eval_func gives none.
        slice: the samples that it is about; empty for all of them.
        verdict: met, not met, or inconclusive where the interval holds the limit.
        baseline: what the float model scores.
        score: what the quantized model scores.
        loss: how much worse that is; a fraction of the baseline if `relative`.
        allowed: the loss that is allowed.
        relative: whether losses are fractions of the baseline.
        higher_is_better: False for scores that are errors.
        samples: how many there are; 0 if eval_func gives one number.
        interval: between which losses the loss on all such data lies; None without scores of samples.
        confidence: how sure it is that the loss on such data is within the limit; None without scores of samples.
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
        """As users read it."""
        return f"{self.metric} of {self.slice}" if self.slice else self.metric

    def __str__(self) -> str:
        text = f"{self.name} {self.score:.6g} of {self.baseline:.6g}: {loss_phrase(self.loss, self.relative)}"
        if self.interval is not None and self.confidence is not None:
            text += f" ({loss_range(*self.interval, self.relative)} on such data, from {self.samples} samples)"
        text += f", {loss_text(self.allowed, self.relative)} allowed: {self.verdict}"
        return (
            text if self.confidence is None else f"{text}; {probability(self.confidence)} confidence that it is within"
        )


@dataclass(frozen=True, slots=True)
class SpeedVerdict:
    """How fast the quantized model is beside the float model, both run in turns.

    Attributes:
        verdict: met, or not met if it is slower than asked for by more than the measurement may be off.
        faster_than: how many times as fast it must be.
        speedup: how many times as fast it is.
        fp32_ms: milliseconds of one inference of the float model.
        quantized_ms: of the quantized model.
        spread: by what part the figures may be off.
        threads: of one inference.
        batch: samples of one inference: 1, or what the model fixes.
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
            f"speed {self.speedup:.2f} times fp32 ({milliseconds(self.quantized_ms)} instead of "
            f"{milliseconds(self.fp32_ms)}, ±{self.spread:.0%}; batch {self.batch}, {self.threads} "
            f"thread{'' if self.threads == 1 else 's'}), {self.faster_than:g} asked for: {self.verdict}"
        )


@dataclass(frozen=True, slots=True)
class ProcessorVerdict:
    """What the quantized model answers on an emulated processor, beside what it answers on this one.

    Attributes:
        verdict: not met if the error there is more than `MAX_ERROR_RATIO` times the error here, or if a limit is not
            met there.
        cpu: the emulated processor.
        kind: which processors it stands for.
        samples: how many samples went through the emulator; errors are of the first 256 of them.
        native_error: how far the outputs are from the float model's on this processor: the norm of the difference over
            the norm of the float model's outputs.
        emulated_error: the same on the emulated processor.
        native_top1: on which share of the samples the largest output is where the float model has it; None if there is
            one output value only.
        emulated_top1: the same on the emulated processor.
        identical: whether all outputs are the same numbers on both.
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
    """The verdict on a quantized model.

    Attributes:
        verdict: of everything: not met if anything is not, else inconclusive if anything is.
        limits: the verdict of each limit, the worst first.
        speed: that of the speed; None if none was asked for.
        confidence: how sure the intervals are, all together; None if the scores alone decide.
        fp32_size: bytes of the float model.
        quantized_size: bytes of the quantized model.
        processor: the answers on an emulated processor; None if none was asked for.
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
        """Whether all is as it must be."""
        return self.verdict is Verdict.MET

    def to_dict(self) -> PlainDict:
        """As builtins, for JSON; `docs/check.schema.json` describes it."""
        found = asdict(self)
        for part in (found, found["processor"] or {"limits": ()}):
            part["limits"] = list(part["limits"])
            for limit in part["limits"]:
                limit["verdict"] = str(limit["verdict"])
                limit["interval"] = None if limit["interval"] is None else list(limit["interval"])
        for name in ("speed", "processor"):
            if found[name] is not None:
                found[name]["verdict"] = str(found[name]["verdict"])
        return {**found, "verdict": str(self.verdict)}

    def __str__(self) -> str:
        others = (part for part in (self.speed, self.processor) if part is not None)
        return "\n".join(map(str, [self.verdict, *self.limits, *others]))


def together(verdicts: list[Verdict]) -> Verdict:
    """One verdict for several."""
    for worst in (Verdict.NOT_MET, Verdict.INCONCLUSIVE):
        if worst in verdicts:
            return worst
    return Verdict.MET
