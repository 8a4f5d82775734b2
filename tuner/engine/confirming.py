"""The winner on data that took no part in choosing it: scored once, and the next best ones if it misses there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from quaver.adapters import Adapter
from quaver.engine.confirmations import NOTE, confirmations, is_required, noted, there
from quaver.engine.evaluation import score as evaluated
from quaver.engine.events import Confirmed, Observer, Stage, StageStarted
from quaver.engine.judge import Judge
from quaver.engine.losses import Losses
from quaver.engine.standard import Standard
from quaver.errors import EvaluationError
from quaver.history import Storage
from quaver.history.scores import from_scores
from quaver.scores import Score
from quaver.trial import Trial


def confirm(
    adapter: Adapter, judge: Judge, history: Storage, eval_func: Callable[[Any], Any], tries: int, observer: Observer
) -> None:
    """Score the winner on the other data, and the next best ones as long as they miss there. All of it is noted."""
    require_confirmation(judge, history)
    for _ in range(tries):
        best = judge.candidate
        if best is None or best.number in {one.trial for one in judge.confirmations}:
            return
        observer(StageStarted(Stage.CONFIRMING))
        if 0 not in noted(history.notes):
            _note(history, 0, _score(eval_func, adapter, None, Standard(there(judge.criterion)), "the fp32 model"))
            Losses(there(judge.criterion), noted(history.notes)[0]).check()
        standard = Standard(there(judge.criterion), noted(history.notes)[0])
        _note(history, best.number, _score(eval_func, adapter, best, standard, f"trial {best.number}"))
        judge.confirm(confirmations(history.notes, judge.criterion), required=True)
        said = judge.confirmations[-1]
        observer(Confirmed(said.trial, said.score, said.baseline, said.loss, said.met))


def require_confirmation(judge: Judge, history: Storage) -> None:
    """Record that the run has a `confirm`: from now on no trial counts as met unless it is confirmed."""
    if not is_required(history.notes):
        history.extend_note(NOTE, {})
    judge.confirm(judge.confirmations, required=True)


def _score(
    eval_func: Callable[[Any], Any], adapter: Adapter, trial: Trial | None, standard: Standard, whose: str
) -> Score:
    model = adapter.rebuild(None if trial is None else trial.config)
    try:
        return evaluated(eval_func, model, standard)
    except Exception as error:
        said = str(error) if isinstance(error, EvaluationError) else f"{type(error).__name__}: {error}"
        raise EvaluationError(f"`confirm` failed on {whose}: {said}. The run itself is complete") from error
    finally:
        model.close()


def _note(history: Storage, number: int, score: Score) -> None:
    history.extend_note(NOTE, {str(number): {"score": score.value, **from_scores(score)}})
