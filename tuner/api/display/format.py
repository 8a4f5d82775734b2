"""How far a verdict can be trusted, in words: limits, intervals, sureness, and what other data say."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from quaver.criterion import Criterion
from quaver.engine.scoring.confirmation import Confirmation
from quaver.engine.scoring.judge import Confidence, Judge
from quaver.engine.scoring.losses import LimitLoss
from quaver.engine.timing.objective import MARGINS
from quaver.limit import loss_phrase, loss_range, loss_text
from quaver.trial import Trial
from quaver.types import PlainMapping

Figures = Mapping[str, float]
# No batch has more samples, and no machine more threads.
MAX_COUNT = 1e9
# The name of the note in a history that says what was converted when the model was read.
CONVERSIONS = "conversions"
# What the phrase about the latency says in one.
LATENCY = ("latency", "latency_ms", "latency_spread", "as_given_ms", "batch", "threads")


def latency_phrase(measured: Figures, fp32: Figures) -> str:
    """The latency of a trial beside that of the float models; empty if it was not measured.

    The float model's is the one that was measured in turns with it. The other float model's, recorded once, is given
    relative to that.
    """
    if "latency" not in measured:
        return ""
    ratio = measured["latency"]
    if "latency_ms" not in measured or ratio <= 0:  # of a version that took the ratio alone
        return f"latency {ratio:.2f} of fp32"
    compared = measured["latency_ms"] / ratio
    return f"{_taken(measured, fp32)}, {ratio:.2f} of {_float_models(compared, fp32)}"


def predicted_phrase(measured: Figures, target: str) -> str:
    """The latency that is predicted for another machine; empty if none is."""
    if "predicted_latency" not in measured:
        return ""
    taken = milliseconds(measured["predicted_ms"])
    return f"predicted for {target or 'the target'}: {taken}, {measured['predicted_latency']:.2f} of fp32 there"


def fp32_phrase(fp32: Figures) -> str:
    """The latency of the float model, and of the one given if that is another; empty if it was not measured."""
    if "latency_ms" not in fp32:
        return ""
    given = f"; as given {milliseconds(fp32['as_given_ms'])}" if "as_given_ms" in fp32 else ""
    return f"{_taken(fp32, fp32)}{' as optimised' if given else ''}{given}"


def milliseconds(value: float) -> str:
    """A time in three digits, given in milliseconds; in microseconds where it is less than a tenth of one."""
    if 0 < value < 0.0995:
        return f"{value * 1e3:.3g} µs"
    return f"{value:.0f} ms" if value >= 100 else f"{value:.3g} ms"


def converted_phrase(conversions: Iterable[str]) -> str:
    """What was converted when the model was read; empty if nothing was."""
    told = ", ".join(conversions)
    return f"the model was converted from {told}" if told else ""


def conversions(notes: PlainMapping) -> tuple[str, ...]:
    """What was converted, from the notes of a history."""
    noted = notes.get(CONVERSIONS)
    return tuple(one for one in noted if isinstance(one, str)) if isinstance(noted, list | tuple) else ()


def timing_setup(fp32: Figures) -> str:
    """Return what latencies were measured with, "batch 1, 2 threads"; empty if that is not recorded."""
    batch, threads = fp32.get("batch", 0.0), fp32.get("threads", 0.0)
    if not (1 <= batch < MAX_COUNT and 1 <= threads < MAX_COUNT):  # a file may come from anywhere
        return ""
    return f"batch {batch:.0f}, {threads:.0f} thread{'' if threads == 1 else 's'}"


def _taken(measured: Figures, fp32: Figures) -> str:
    spread = f"{max(measured.get('latency_spread', 0.0), MARGINS[0]) * 100:.0f} %"
    said = f"latency {milliseconds(measured['latency_ms'])} ±{spread}"
    setup = timing_setup(fp32)
    return f"{said} ({setup})" if setup else said


def _float_models(compared: float, fp32: Figures) -> str:
    optimised, given = fp32.get("latency_ms", 0.0), fp32.get("as_given_ms", 0.0)
    if optimised <= 0 or given <= 0:
        return f"fp32 ({milliseconds(compared)})"
    if given < optimised:
        return f"fp32 as given ({milliseconds(compared)}; optimised {milliseconds(compared * optimised / given)})"
    return f"fp32 optimised ({milliseconds(compared)}; as given {milliseconds(compared * given / optimised)})"


# A latency of so many times fp32's counts as slower, one below the inverse as faster; between them nobody would notice.
SLOWER = 1.03
# No duration is longer than a thousand years: a larger number was not measured.
MAX_SECONDS = 1000 * 365.25 * 86400


def name(text: str) -> str:
    """An op's name on one line: what cannot be printed is escaped, so that no terminal obeys it."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def paragraph(text: str) -> str:
    """The same words on one line."""
    return name(" ".join(text.split()))


def score(value: float | None) -> str:
    """A score."""
    return "-" if value is None else f"{value:.6g}"


def scores(trial: Trial) -> str:
    """The score of a trial, with all metrics if they have names."""
    named = ", ".join(f"{name(metric)} {score(value)}" for metric, value in trial.metrics.items())
    return f"{score(trial.score)} ({named})" if len(trial.metrics) > 1 else score(trial.score)


def loss(value: float | None, criterion: Criterion) -> str:
    """Return a loss in the criterion's unit, for a place that says that it is one; a gain is called "better"."""
    return "-" if value is None else loss_text(value, criterion.is_relative)


def loss_or_gain(value: float | None, criterion: Criterion) -> str:
    """Return "loss 0.87%" or "gain 0.87%", for a list of figures."""
    return "loss unknown" if value is None else loss_phrase(value, criterion.is_relative)


def loss_is(value: float | None, criterion: Criterion) -> str:
    """Return "the loss is 0.87%" or "the gain is 0.87%"."""
    return f"the {loss_or_gain(value, criterion).replace(' ', ' is ', 1)}"


def loss_between(interval: tuple[float, float], criterion: Criterion) -> str:
    """Return between what a loss lies, in the criterion's unit."""
    return loss_range(*interval, criterion.is_relative)


def allowed(criterion: Criterion) -> str:
    """The loss that is allowed."""
    if criterion.target_budget is not None:
        return "as little as can be"
    return loss(criterion.allowed, criterion)


def verdict(trial: Trial) -> str:
    """Whether a trial meets the criterion."""
    if trial.stopped:
        return f"stopped after {trial.seen:,} samples"
    if trial.failed or trial.unscored:
        return "failed" if trial.failed else "not evaluated"
    return "met" if trial.met else "not met"


def counts(trial: Trial) -> str:
    """How many ops run in what."""
    return " / ".join(f"{count} {precision}" for precision, count in trial.config.counts.items())


def seconds(value: float) -> str:
    """Return a duration, as exact as anyone needs it; "unknown" for what a clock cannot have measured."""
    if not 0 <= value < MAX_SECONDS:  # NaN, infinite, negative: a file may come from anywhere
        return "unknown time"
    if value < 10:
        return f"{value:.1f} s"
    if value < 120:
        return f"{value:.0f} s"
    minutes = round(value / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def size(count: int) -> str:
    """A file size."""
    if count < 1000:
        return f"{count} bytes"
    for unit, factor in (("KB", 1e3), ("MB", 1e6), ("GB", 1e9)):
        if count < 999.5 * factor or unit == "GB":
            return f"{count / factor:.3g} {unit}"
    raise AssertionError


def latency(ratio: float, margin: float = SLOWER - 1.0) -> str:
    """Return a latency as a fraction of the fp32 model's; `margin` is its error bar, as a part of itself."""
    if ratio <= 0 or not math.isfinite(ratio):
        return f"{ratio:.3g} of fp32"
    change = f"{1 / ratio:.2f}x faster" if ratio < 1 else f"{ratio:.2f}x SLOWER"
    is_even = ratio * (1.0 - margin) <= 1.0 <= ratio * (1.0 + margin)
    return f"{ratio:.2f} of fp32 ({'about as fast' if is_even else change})"


def last_line(error: str | None) -> str:
    """What a traceback ends with."""
    lines = (error or "").strip().splitlines()
    return paragraph(lines[-1]) if lines else ""


# So many limits are named, the worst first.
NAMED = 5


def percent(value: float) -> str:
    """A chance in percent; only what is certain is 100."""
    shown = 100 * value
    return f"{shown:.0f} %" if 1 <= shown <= 99 else "above 99 %" if shown > 99 else "below 1 %"


def trial_phrases(trial: Trial, judge: Judge) -> list[str]:
    """How far the verdict on a trial can be trusted, a line each: limits, interval and sureness, other data."""
    criterion = judge.criterion
    there = [one for one in judge.confirmations if one.trial == trial.number]
    sure = sure_line(trial, judge.confidence(trial), criterion)
    return [*lost_phrases(judge.losses(trial)), *([sure] if sure else []), *confirmed_phrases(there, criterion)]


def sure_line(trial: Trial, sure: Confidence | None, criterion: Criterion) -> str:
    """Met or not, how sure that is, and between what the loss lies; empty if nobody can say."""
    interval = interval_phrase(trial, criterion)
    if trial.stopped or sure is None or not interval:
        return interval
    return f"{'met' if trial.met else 'not met'}; {sure_phrase(sure, criterion)}; {interval}"


def sure_phrase(sure: Confidence | None, criterion: Criterion) -> str:
    """How sure it is that the loss on such data is within the criterion; empty if nobody can say."""
    if sure is None:
        return ""
    within = "within all limits" if criterion.is_conjunction else f"at most {allowed(criterion)}"
    said = f"{percent(sure.chosen)} sure that the loss on such data is {within}"
    if sure.trials < 2 or percent(sure.chosen) == percent(sure.alone):
        return said
    return f"{said} ({percent(sure.alone)} if it were not chosen among {sure.trials} trials)"


def interval_phrase(trial: Trial, criterion: Criterion) -> str:
    """Return between what the loss on such data lies, in a sentence; empty if nobody can say."""
    if trial.interval is None:
        return ""
    between = loss_between(trial.interval, criterion)
    subject = "score" if "better" in between else "loss"
    return f"the {subject} is {between} with {criterion.confidence or 0.95:.4g} confidence"


def lost_phrases(losses: Sequence[LimitLoss]) -> Iterator[str]:
    """What is lost by each of several limits, the worst first; nothing if there is but one."""
    if len(losses) < 2:
        return
    for lost in losses[:NAMED]:
        loss = loss_phrase(lost.loss, lost.limit.relative)
        allowed = loss_text(lost.limit.allowed, lost.limit.relative)
        verdict = "" if lost.met else ", NOT met"
        name = lost.limit.name or "score"
        yield f"{name}: {lost.score:.6g} against {lost.baseline:.6g}, {loss} (allowed: {allowed}){verdict}"
    if len(losses) > NAMED:
        yield f"and {len(losses) - NAMED} more limits, with no larger losses"


def confirmed_phrases(confirmations: Iterable[Confirmation], criterion: Criterion) -> Iterator[str]:
    """What each trial that was confirmed scores on the other data."""
    for one in confirmations:
        verdict = "confirmed" if one.met else "NOT confirmed"
        loss = loss_or_gain(one.loss, criterion)
        yield (
            f"trial {one.trial} {verdict} on other data: score {one.score:.6g} against {one.baseline:.6g} in fp32, "
            f"{loss} (allowed: {allowed(criterion)})"
        )


def unconfirmed_phrase(best: Trial | None, met: bool | None, confirmations: Sequence[Confirmation]) -> str:
    """Return what was tried on the data of `confirm`, where the best trial meets the criterion but is not confirmed.

    Args:
        best: the best trial, judged on the data that it was chosen by.
        met: the verdict of the run, which asks for a confirmed trial where there is a `confirm`.
        confirmations: what was scored on the other data.
    """
    if best is None or not best.met or met is not False:
        return ""
    missed = [str(confirmation.trial) for confirmation in confirmations]
    if not missed:
        return "no trial was scored on the data of `confirm`: resume the run with it"
    if len(missed) == 1:
        tried = f"trial {missed[0]} was scored on the data of `confirm` and misses the criterion there"
    else:
        tried = f"trials {', '.join(missed)} were scored on the data of `confirm`, and all miss the criterion there"
    return f"{tried}; resume the run to try the next best ones (`confirm_tries`)"


def seen_phrase(trials: Iterable[Trial], total: int) -> str:
    """How many samples early stop has saved; empty if it has saved none."""
    scored = [trial for trial in trials if trial.samples]
    stopped = [trial for trial in scored if trial.stopped]
    if not stopped or not total:
        return ""
    seen = sum(trial.seen for trial in scored)
    part = seen / (total * len(scored))
    return f"{len(stopped)} trials stopped early: {seen:,} of {total * len(scored):,} samples were scored ({part:.0%})"
