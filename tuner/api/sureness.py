"""How far a verdict can be trusted, in words: limits, intervals, sureness, and what other data say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from quaver.api import wording
from quaver.criterion import Criterion
from quaver.engine.confirmations import Confirmation
from quaver.engine.judge import Judge, Sureness
from quaver.engine.losses import Lost
from quaver.limit import loss_phrase, loss_text
from quaver.trial import Trial

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
    sure = sure_line(trial, judge.sureness(trial), criterion)
    return [*lost_phrases(judge.losses(trial)), *([sure] if sure else []), *confirmed_phrases(there, criterion)]


def sure_line(trial: Trial, sure: Sureness | None, criterion: Criterion) -> str:
    """Met or not, how sure that is, and between what the loss lies; empty if nobody can say."""
    interval = interval_phrase(trial, criterion)
    if trial.stopped or sure is None or not interval:
        return interval
    return f"{'met' if trial.met else 'not met'}; {sure_phrase(sure, criterion)}; {interval}"


def sure_phrase(sure: Sureness | None, criterion: Criterion) -> str:
    """How sure it is that the loss on such data is within the criterion; empty if nobody can say."""
    if sure is None:
        return ""
    within = "within all limits" if criterion.is_conjunction else f"at most {wording.allowed(criterion)}"
    said = f"{percent(sure.chosen)} sure that the loss on such data is {within}"
    if sure.trials < 2 or percent(sure.chosen) == percent(sure.alone):
        return said
    return f"{said} ({percent(sure.alone)} if it were not chosen among {sure.trials} trials)"


def interval_phrase(trial: Trial, criterion: Criterion) -> str:
    """Return between what the loss on such data lies, in a sentence; empty if nobody can say."""
    if trial.interval is None:
        return ""
    between = wording.loss_between(trial.interval, criterion)
    subject = "score" if "better" in between else "loss"
    return f"the {subject} is {between} with {criterion.confidence or 0.95:.4g} confidence"


def lost_phrases(losses: Sequence[Lost]) -> Iterator[str]:
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
        loss = wording.loss_or_gain(one.loss, criterion)
        yield (
            f"trial {one.trial} {verdict} on other data: score {one.score:.6g} against {one.baseline:.6g} in fp32, "
            f"{loss} (allowed: {wording.allowed(criterion)})"
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
