"""The one loop: ask, call the user's eval_func, tell. It never knows which strategy runs."""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Callable
from typing import Any

from quaver.budget import StopReason
from quaver.engine.evaluation import score, watched
from quaver.engine.events import Observer, TrialSlow
from quaver.engine.no_space import want_of_space
from quaver.engine.run import PendingTrial, Run
from quaver.errors import EvaluationError, HistoryError

log = logging.getLogger(__name__)


def drive(run: Run, eval_func: Callable[[Any], Any], observer: Observer) -> StopReason:
    """Score what a run asks for until it is over. Ctrl-C ends it with what there is, once there is a baseline."""
    try:
        while (pending := run.ask()) is not None:
            if pending.number == 0:
                _score_baseline(run, pending, eval_func)
            else:
                _score(run, pending, eval_func, observer)
    except KeyboardInterrupt:
        if run.judge.baseline is None:
            raise
        log.warning("interrupted; the best trial so far is kept")
        run.stop(StopReason.INTERRUPTED)
    finally:
        run.close()
    assert run.reason is not None
    return run.reason


def _score_baseline(run: Run, pending: PendingTrial, eval_func: Callable[[Any], Any]) -> None:
    """Any trouble here is the user's to mend at once."""
    model = pending.model
    try:
        value = score(eval_func, model)
    except EvaluationError as error:
        raise EvaluationError(f"on the fp32 model {error}") from None
    except Exception as error:
        raise EvaluationError(f"eval_func failed on the fp32 model: {type(error).__name__}: {error}") from error
    run.tell(pending, value)


def _score(run: Run, pending: PendingTrial, eval_func: Callable[[Any], Any], observer: Observer) -> None:
    base = run.history.baseline
    assert base is not None
    usual = base.seconds
    try:
        model = pending.model
        begin = time.monotonic()
        with watched(usual, lambda seconds: observer(TrialSlow(pending.number, seconds, usual))):
            value = score(eval_func, model)
        seconds = time.monotonic() - begin
        model.sha256  # noqa: B018 - a model that cannot be written out is a failed trial, too
    except Exception as error:
        if want_of_space(error):
            raise HistoryError(
                f"there is no space left for trial {pending.number}: {error}. It does not count. Free some space, then "
                f"continue with fit(..., resume={str(run.history.path)!r})"
            ) from error
        run.fail(pending, traceback.format_exc())
        return
    run.tell(pending, value, seconds)
