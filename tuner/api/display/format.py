"""Sentences about a result: latency, conversions, limits, intervals, confidence, and scores on other data.

Numbers are formatted by `quaver.formatting`; this module puts them into sentences.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from quaver.criterion import Criterion
from quaver.engine.scoring.confirmation import Confirmation
from quaver.engine.scoring.judge import Confidence, Judge
from quaver.engine.scoring.losses import LimitLoss
from quaver.engine.timing.objective import MIN_MARGIN
from quaver.formatting import allowed, loss_between, loss_or_gain, milliseconds, plural, probability
from quaver.limit import loss_phrase, loss_text
from quaver.trial import Trial
from quaver.types import PlainMapping

Figures = Mapping[str, float]
"""Measured figures by name, as `Trial.measured` holds them."""

# Larger batches and thread counts do not exist: the file that they come from is damaged.
MAX_COUNT = 1e9
# The note of a history that holds what was converted when the model was loaded.
CONVERSIONS = "conversions"
# The figures that `latency_phrase` tells, so that a table of the others can leave them out.
LATENCY = ("latency", "latency_ms", "latency_spread", "as_given_ms", "batch", "threads")
# Limits that are listed, the worst first. Judgement: more lines would hide the verdict.
MAX_LIMITS = 5


def latency_phrase(measured: Figures, fp32: Figures) -> str:
    """Return a trial's latency compared with fp32's: "0.43x fp32 latency (3.8 ms ±1 % vs 8.9 ms, batch 1, 1 thread)".

    Args:
        measured: the trial's figures.
        fp32: those of the fp32 model. Of its two versions, as given and optimised, the faster one is compared.

    Returns:
        The sentence; empty if no latency was measured.
    """
    if "latency" not in measured:
        return ""
    figures = latency_figures(measured, fp32)
    return f"{measured['latency']:.2f}x fp32 latency{f' ({figures})' if figures else ''}"


def latency_figures(measured: Figures, fp32: Figures) -> str:
    """Return the milliseconds behind a ratio: "3.8 ms ±1 % vs 8.9 ms optimised, 14 ms as given, batch 1, 1 thread"."""
    ratio = measured.get("latency", 0.0)
    if "latency_ms" not in measured or ratio <= 0:  # recorded by a version that kept the ratio alone
        return ""
    comparison = _fp32_latencies(measured["latency_ms"] / ratio, fp32)
    return ", ".join(filter(None, [f"{_with_spread(measured)} vs {comparison}", timing_setup(fp32)]))


def predicted_phrase(measured: Figures, target: str) -> str:
    """Return the latency predicted for another machine, compared with fp32's there; empty without a prediction."""
    if "predicted_latency" not in measured or "predicted_ms" not in measured:
        return ""
    ratio, predicted_ms = measured["predicted_latency"], milliseconds(measured["predicted_ms"])
    return f"predicted for {target or 'the target'}: {ratio:.2f}x fp32 latency there ({predicted_ms})"


def fp32_phrase(fp32: Figures) -> str:
    """Return the latency of the fp32 model, optimised and as given; empty if it was not measured."""
    if "latency_ms" not in fp32:
        return ""
    versions = f", optimised; as given {milliseconds(fp32['as_given_ms'])}" if "as_given_ms" in fp32 else ""
    setup = timing_setup(fp32)
    return f"latency {_with_spread(fp32)}{f' ({setup})' if setup else ''}{versions}"


def timing_setup(fp32: Figures) -> str:
    """Return what latencies were measured with, "batch 1, 2 threads"; empty if that is not recorded."""
    batch, threads = fp32.get("batch", 0.0), fp32.get("threads", 0.0)
    if not (1 <= batch < MAX_COUNT and 1 <= threads < MAX_COUNT):
        return ""
    return f"batch {batch:.0f}, {plural(round(threads), 'thread')}"


def _with_spread(measured: Figures) -> str:
    """Return a latency with its error bar, which is never smaller than the margin of a comparison."""
    spread = max(measured.get("latency_spread", 0.0), MIN_MARGIN)
    return f"{milliseconds(measured['latency_ms'])} ±{spread * 100:.0f} %"


def _fp32_latencies(fp32_ms: float, fp32: Figures) -> str:
    """Return the latency of the fp32 model that a trial was interleaved with, then that of its other version.

    The other version was measured once, at the start, so its latency is scaled to the comparison's.
    """
    optimised, as_given = fp32.get("latency_ms", 0.0), fp32.get("as_given_ms", 0.0)
    if optimised <= 0 or as_given <= 0:
        return milliseconds(fp32_ms)
    if as_given < optimised:
        return f"{milliseconds(fp32_ms)} as given, {milliseconds(fp32_ms * optimised / as_given)} optimised"
    return f"{milliseconds(fp32_ms)} optimised, {milliseconds(fp32_ms * as_given / optimised)} as given"


def conversions(notes: PlainMapping) -> tuple[str, ...]:
    """Return what was converted when the model was loaded, from the notes of a history."""
    noted = notes.get(CONVERSIONS)
    return tuple(text for text in noted if isinstance(text, str)) if isinstance(noted, list | tuple) else ()


def converted_phrase(conversions: Iterable[str]) -> str:
    """Return the conversions as a sentence; empty if there were none."""
    listed = ", ".join(conversions)
    return f"the model was converted from {listed}" if listed else ""


def trial_phrases(trial: Trial, judge: Judge) -> list[str]:
    """Return how reliable the verdict on a trial is, one line each: limits, confidence, scores on other data."""
    confirmations = [confirmation for confirmation in judge.confirmations if confirmation.trial == trial.number]
    return trust_phrases(trial, judge.losses(trial), judge.confidence(trial), confirmations, judge.criterion)


def trust_phrases(
    trial: Trial,
    losses: Sequence[LimitLoss],
    confidence: Confidence | None,
    confirmations: Iterable[Confirmation],
    criterion: Criterion,
) -> list[str]:
    """Return how reliable the verdict on a trial is, from its losses, its confidence and its scores on other data."""
    line = confidence_line(trial, confidence, criterion)
    return [*limit_phrases(losses), *([line] if line else []), *confirmation_phrases(confirmations, criterion)]


def confidence_line(trial: Trial, confidence: Confidence | None, criterion: Criterion) -> str:
    """Return the verdict with its confidence and the interval of the loss; empty without scores of samples."""
    interval = interval_phrase(trial, criterion)
    if trial.stopped or confidence is None or not interval:
        return interval
    return f"{'met' if trial.met else 'not met'}; {confidence_phrase(confidence, criterion)}; {interval}"


def confidence_phrase(confidence: Confidence | None, criterion: Criterion) -> str:
    """Return the confidence that the loss on such data is within the criterion; empty without scores of samples."""
    if confidence is None:
        return ""
    within = "within all limits" if criterion.is_conjunction else f"at most {allowed(criterion)}"
    sentence = f"{probability(confidence.chosen)} confidence that the loss on such data is {within}"
    if confidence.trials < 2 or probability(confidence.chosen) == probability(confidence.alone):
        return sentence
    uncorrected = probability(confidence.alone)
    return f"{sentence} ({uncorrected} before correcting for the choice among {confidence.trials} trials)"


def interval_phrase(trial: Trial, criterion: Criterion) -> str:
    """Return the confidence interval of the loss on such data, in a sentence; empty without scores of samples."""
    if trial.interval is None:
        return ""
    between = loss_between(trial.interval, criterion)
    subject = "score" if "better" in between else "loss"
    return f"the {subject} is {between} with {criterion.confidence or 0.95:.4g} confidence"


def limit_phrases(losses: Sequence[LimitLoss]) -> Iterator[str]:
    """Yield the loss by each of several limits, the worst first; nothing if there is only one."""
    if len(losses) < 2:
        return
    for lost in losses[:MAX_LIMITS]:
        loss = loss_phrase(lost.loss, lost.limit.relative)
        allowed = loss_text(lost.limit.allowed, lost.limit.relative)
        verdict = "" if lost.met else ", NOT met"
        name = lost.limit.name or "score"
        yield f"{name}: {lost.score:.6g} vs {lost.baseline:.6g} in fp32, {loss} (allowed: {allowed}){verdict}"
    if len(losses) > MAX_LIMITS:
        yield f"and {len(losses) - MAX_LIMITS} more limits, with no larger losses"


def confirmation_phrases(confirmations: Iterable[Confirmation], criterion: Criterion) -> Iterator[str]:
    """Yield the score of each trial that was scored on the data of `confirm`."""
    for confirmation in confirmations:
        verdict = "confirmed" if confirmation.met else "NOT confirmed"
        loss = loss_or_gain(confirmation.loss, criterion)
        yield (
            f"trial {confirmation.trial} {verdict} on other data: score {confirmation.score:.6g} vs "
            f"{confirmation.baseline:.6g} in fp32, {loss} (allowed: {allowed(criterion)})"
        )


def unconfirmed_phrase(best: Trial | None, met: bool | None, confirmations: Sequence[Confirmation]) -> str:
    """Return what was scored on the data of `confirm`, if the best trial meets the criterion but is not confirmed.

    Args:
        best: the best trial, judged on the data that it was chosen by.
        met: the verdict of the run, which asks for a confirmed trial where there is a `confirm`.
        confirmations: what was scored on the other data.
    """
    if best is None or not best.met or met is not False:
        return ""
    missed = [str(confirmation.trial) for confirmation in confirmations]
    if not missed:
        return "no trial was scored on the data of `confirm`: resume the run and pass `confirm`"
    if len(missed) == 1:
        scored = f"trial {missed[0]} was scored on the data of `confirm` and misses the criterion there"
    else:
        scored = f"trials {', '.join(missed)} were scored on the data of `confirm`, and all miss the criterion there"
    return f"{scored}; resume the run to try the next best ones (`confirm_tries`)"


def early_stop_phrase(trials: Iterable[Trial], total: int) -> str:
    """Return how many samples early stop saved; empty if it saved none.

    Args:
        trials: all trials of the run.
        total: how many samples the fp32 model was scored on.
    """
    scored = [trial for trial in trials if trial.samples]
    stopped = [trial for trial in scored if trial.stopped]
    if not stopped or not total:
        return ""
    evaluated, possible = sum(trial.seen for trial in scored), total * len(scored)
    return (
        f"{plural(len(stopped), 'trial')} stopped early: {evaluated:,} of {possible:,} samples were scored "
        f"({evaluated / possible:.0%})"
    )
