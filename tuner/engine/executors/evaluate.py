"""Build a model and score it: the one way in which this process and workers evaluate a trial."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Callable

from quaver.adapters import Model
from quaver.engine.executors.base import Evaluation, Outcome, State
from quaver.engine.scoring.early_stop import EarlyStopReference
from quaver.engine.scoring.evaluate import score
from quaver.engine.scoring.failures import message_of, text_of, traceback_of
from quaver.types import EvalFunc

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
_DISK_FULL_TEXTS = tuple(os.strerror(number) for number in _DISK_FULL)


def evaluate_model(
    build: Callable[[], Model],
    eval_func: EvalFunc,
    reference: EarlyStopReference | None,
    while_scoring: contextlib.AbstractContextManager[None] | None = None,
) -> Outcome:
    """Build a model and score it. Every exception is an outcome, `SystemExit` and `KeyboardInterrupt` included.

    Args:
        build: returns the model.
        eval_func: scores it.
        reference: what early stop compares the scores with.
        while_scoring: entered around the call of eval_func.
    """
    start = built = time.monotonic()
    try:
        model = build()
        built = time.monotonic()
        with while_scoring or contextlib.nullcontext():
            result = score(eval_func, model, reference)
        scored = time.monotonic()
        digest, size = model.sha256, model.size  # fails if the model cannot be written out: a failed trial, too
    except BaseException as error:
        return failed(error, time.monotonic() - built, built - start)
    other_seconds = built - start + time.monotonic() - scored
    return Outcome(State.DONE, Evaluation(result, scored - built, other_seconds, digest, size))


def failed(error: BaseException, seconds: float = 0.0, build_seconds: float = 0.0) -> Outcome:
    """Return the outcome of a task that raised an exception."""
    state = State.FULL if is_disk_full(error) else State.FAILED
    evaluation = Evaluation(seconds=seconds, build_seconds=build_seconds, error=traceback_of(error))
    return Outcome(state, evaluation, message_of(error), exception=error)


def is_disk_full(error: BaseException) -> bool:
    """Return whether an error, or one that caused it, is that a disk is full; frameworks say so in text.

    A full disk says nothing about a configuration, so its trial is not recorded as failed but repeated later.
    """
    visited: set[int] = set()
    chain: list[BaseException | None] = [error]
    while chain:
        link = chain.pop()
        if link is None or id(link) in visited:
            continue
        visited.add(id(link))
        if isinstance(link, OSError) and link.errno in _DISK_FULL:
            return True
        if any(text in text_of(link) for text in _DISK_FULL_TEXTS):
            return True
        chain += [link.__cause__, link.__context__]
    return False
