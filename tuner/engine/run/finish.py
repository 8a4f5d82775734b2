"""Note how a run ended, its warnings and what cannot be quantized; score the winner on other data."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import UTC, datetime

from quaver.adapters import Adapter, abilities
from quaver.budget import StopReason
from quaver.engine.event_base import Stage
from quaver.engine.events import Confirmed, StageStarted
from quaver.engine.observers import Observer
from quaver.engine.run.crashes import last_step
from quaver.engine.scoring.benefit import benefit
from quaver.engine.scoring.confirmation import (
    CONFIRMATION_NOTE,
    confirmations,
    held_out_scores,
    is_required,
    without_slices,
)
from quaver.engine.scoring.early_stop import EarlyStopReference
from quaver.engine.scoring.evaluate import score as evaluated
from quaver.engine.scoring.judge import Judge
from quaver.engine.scoring.losses import Losses
from quaver.errors import EvaluationError
from quaver.history import History
from quaver.history.records.trials import from_scores
from quaver.scores import Score
from quaver.trial import Trial
from quaver.types import EvalFunc, PlainDict, PlainMapping
from quaver.unquantizable import UNQUANTIZABLE_NOTE, Unquantizable, from_notes, to_note

ENDING_NOTE = "run.ended"
# The note of warnings by topic, which any part of a run can add to.
WARNINGS = "warnings"


def note_ending(history: History, reason: StopReason, stages: dict[str, float], seconds: float, model: str) -> None:
    """Note why the latest run is over. A run without this note still runs, or was killed."""
    ending: PlainDict = {
        "run": history.run.number,
        "reason": str(reason),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": seconds,
        "stages": stages,
        "model": model,
    }
    history.note(ENDING_NOTE, ending)


def was_killed_before_a_gain(history: History, judge: Judge) -> bool:
    """Return True if the run before this one was killed when its best model was no faster or smaller than fp32.

    It may have been searching for a better one, which is then continued.
    """
    last, ending = history.run.number - 1, history.notes.get(ENDING_NOTE)
    compared = benefit(judge.best, judge.objective, history.baseline)
    if last < 1 or compared is None or compared.is_gain:
        return False
    return not (isinstance(ending, dict) and ending.get("run") == last)


def note_warning(history: History, topic: str, text: str) -> None:
    """Record a warning, which results, pages and reports show (see `quaver.api.result_warnings`).

    Args:
        history: the history of the run.
        topic: a short key; a later warning of the same topic replaces the earlier one, an empty text withdraws it.
        text: a sentence or two, with the figure and the advice.
    """
    if noted_warnings(history.notes).get(topic, "") != text:
        history.extend_note(WARNINGS, {topic: text})


def noted_warnings(notes: PlainMapping) -> dict[str, str]:
    """Return the recorded warnings by topic, as far as they can be read."""
    noted = notes.get(WARNINGS)
    entries = noted.items() if isinstance(noted, dict) else ()
    return {topic: text for topic, text in entries if isinstance(topic, str) and isinstance(text, str) and text}


log = logging.getLogger(__name__)


def note_unquantizable(adapter: Adapter, history: History, timed: bool) -> None:
    """Note the op kinds that cannot be quantized and, if `timed`, their share of the fp32 latency, once."""
    noted = from_notes(history.notes)
    if noted and not (timed and any(kind.share is None for kind in noted)):
        return
    kinds: Sequence[Unquantizable] | None = None
    if timed:
        with last_step(history, "timing what cannot be quantized", "its share of the time is not known") as may_run:
            kinds = _timed(adapter) if may_run else None
    if kinds is None:
        kinds = abilities.unquantizable(adapter)
    if kinds and tuple(kinds) != noted:
        history.note(UNQUANTIZABLE_NOTE, to_note(kinds))


def _timed(adapter: Adapter) -> Sequence[Unquantizable]:
    try:
        return abilities.unquantizable(adapter, timed=True)
    except Exception:  # ops that a runtime cannot profile can still be named
        log.warning("what cannot be quantized could not be timed", exc_info=True)
        return abilities.unquantizable(adapter)


def confirm(
    adapter: Adapter, judge: Judge, history: History, eval_func: EvalFunc, tries: int, observer: Observer
) -> None:
    """Score the winner on other data, and the next best trials while they miss the criterion there."""
    require_confirmation(judge, history)
    for _ in range(tries):
        best = judge.candidate
        if best is None or best.number in {confirmation.trial for confirmation in judge.confirmations}:
            return
        observer(StageStarted(Stage.CONFIRMING))
        if 0 not in held_out_scores(history.notes):
            _note(
                history,
                0,
                _score(eval_func, adapter, None, EarlyStopReference(without_slices(judge.criterion)), "the fp32 model"),
            )
            Losses(without_slices(judge.criterion), held_out_scores(history.notes)[0]).check()
        reference = EarlyStopReference(without_slices(judge.criterion), held_out_scores(history.notes)[0])
        _note(history, best.number, _score(eval_func, adapter, best, reference, f"trial {best.number}"))
        judge.confirm(confirmations(history.notes, judge.criterion), required=True)
        last = judge.confirmations[-1]
        observer(Confirmed(last.trial, last.score, last.baseline, last.loss, last.met))


def require_confirmation(judge: Judge, history: History) -> None:
    """Record that the run has a `confirm`, so that only a confirmed trial counts as met."""
    if not is_required(history.notes):
        history.extend_note(CONFIRMATION_NOTE, {})
    judge.confirm(judge.confirmations, required=True)


def _score(
    eval_func: EvalFunc, adapter: Adapter, trial: Trial | None, reference: EarlyStopReference, subject: str
) -> Score:
    model = adapter.assemble(None if trial is None else trial.config)
    try:
        return evaluated(eval_func, model, reference)
    except Exception as error:
        message = str(error) if isinstance(error, EvaluationError) else f"{type(error).__name__}: {error}"
        raise EvaluationError(f"`confirm` failed on {subject}: {message}. The run itself is complete") from error
    finally:
        model.close()


def _note(history: History, number: int, score: Score) -> None:
    history.extend_note(CONFIRMATION_NOTE, {str(number): {"score": score.value, **from_scores(score)}})
