"""The loop of `fit`: ask for a trial, let an executor evaluate it, record it."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, replace
from typing import Any

from quaver.budget import StopReason
from quaver.engine.events import TrialSlow
from quaver.engine.executors.base import Executor, Outcome, State, Task, limit
from quaver.engine.observers import Observer
from quaver.engine.run.pending_trial import PendingTrial
from quaver.engine.run.run import Run
from quaver.engine.scoring.evaluate import slow_after
from quaver.errors import EvaluationError, ExecutorError, HistoryError, QuaverError

log = logging.getLogger(__name__)


def drive(
    run: Run,
    executor: Executor,
    observer: Observer,
    trial_timeout: float | str | None = None,
    wait: Callable[..., Any] = wait,
) -> StopReason:
    """Score trials until the run is over. Ctrl-C ends it with the best so far, once there is a baseline.

    Args:
        run: the run.
        executor: evaluates trials.
        observer: receives an event for each slow evaluation.
        trial_timeout: how long an evaluation may take, as the setting of this name.
        wait: `concurrent.futures.wait`, unless time is simulated.

    Returns:
        Why the run is over.
    """
    run.isolated = executor.isolated
    try:
        _Loop(run, executor, observer, trial_timeout, wait).go()
    except KeyboardInterrupt:
        if run.judge.baseline is None:
            raise
        log.warning("interrupted; the best trial so far is kept")
        run.stop(StopReason.INTERRUPTED)
    finally:
        run.close()
    assert run.reason is not None
    return run.reason


@dataclass
class _RunningTrial:
    """A trial that an executor works on.

    Attributes:
        pending: the trial.
        is_retry: True if its first worker died.
        start: when it was submitted.
        warn_after: seconds after which it counts as slow.
    """

    pending: PendingTrial
    is_retry: bool
    start: float
    warn_after: float


class _Loop:
    """The running trials, and those whose worker died.

    When a worker dies, its trial is repeated once while no other trial runs, because the others may have used up the
    memory. If that worker dies as well, the trial has failed.
    """

    def __init__(
        self,
        run: Run,
        executor: Executor,
        observer: Observer,
        trial_timeout: float | str | None,
        wait: Callable[..., Any],
    ) -> None:
        self._wait = wait
        self._run, self._executor, self._observer, self._limit = run, executor, observer, trial_timeout
        self._running: dict[Future[Outcome], _RunningTrial] = {}
        self._to_repeat: deque[PendingTrial] = deque()

    def go(self) -> None:
        """Evaluate trials until the run is over."""
        while True:
            self._dispatch()
            if not self._running:
                return
            done = self._wait(self._running, self._until_slow(), return_when=FIRST_COMPLETED).done
            for future in sorted(done, key=lambda future: self._running[future].pending.number):
                trial = self._running.pop(future)
                self._record(trial, future.result())

    def _dispatch(self) -> None:
        if self._to_repeat:
            if not self._running:
                self._submit(self._to_repeat.popleft(), is_retry=True)
            return
        while len(self._running) < self._executor.jobs and (pending := self._run.next()) is not None:
            self._submit(pending)

    def _submit(self, pending: PendingTrial, is_retry: bool = False) -> None:
        usual = self._run.usual()
        task = replace(
            Task.of(pending.number, pending.config if pending.number else None),
            seconds=limit(self._limit, usual),
            reference=self._run.reference,
            build=None if self._executor.isolated else lambda: pending.model,
            usual=usual,
        )
        start = time.monotonic()
        future = self._executor.submit(task)
        self._running[future] = _RunningTrial(pending, is_retry, start, slow_after(usual))

    def _until_slow(self) -> float | None:
        """Emit `TrialSlow` for trials that take far longer than the baseline did. They continue.

        Returns:
            The seconds until the next trial may be slow; None if no trial can be.
        """
        usual, now = self._run.usual(), time.monotonic()
        if usual is None or not self._executor.isolated:  # this process watches itself
            return None
        for trial in self._running.values():
            if now - trial.start >= trial.warn_after:
                trial.warn_after *= 2
                self._observer(TrialSlow(trial.pending.number, now - trial.start, usual))
        return max(min(trial.start + trial.warn_after for trial in self._running.values()) - now, 0.01)

    def _record(self, trial: _RunningTrial, outcome: Outcome) -> None:
        pending = trial.pending
        if outcome.state is State.REFUSED:
            raise ExecutorError(outcome.message) from outcome.exception
        if outcome.state is State.DIED and not trial.is_retry:
            log.warning("trial %d: %s; it is repeated while no other trial runs", pending.number, outcome.message)
            self._to_repeat.append(pending)
            return
        if outcome.state is State.FULL:
            raise HistoryError(
                f"the disk is full, so trial {pending.number} is not counted: {outcome.message}. Free some "
                f"space, then continue with fit(..., resume={str(self._run.history.path)!r})"
            ) from outcome.exception
        if outcome.state is not State.DONE and pending.number == 0:
            raise _no_baseline(outcome) from outcome.exception
        if outcome.state is State.DIED:
            evaluation = replace(
                outcome.evaluation, error=f"its worker died twice. The second time {outcome.evaluation.error}"
            )
            self._run.record(pending, evaluation)
            return
        self._run.record(pending, outcome.evaluation)


def _no_baseline(outcome: Outcome) -> QuaverError:
    """Return the error for a failed fp32 model, which ends the run: the user must fix it first."""
    if isinstance(outcome.exception, EvaluationError) or outcome.message.startswith("eval_func returned"):
        return EvaluationError(f"on the fp32 model {outcome.message}")
    if outcome.state is not State.FAILED:
        return EvaluationError(f"eval_func gave no score for the fp32 model: {outcome.evaluation.error}")
    return EvaluationError(f"eval_func failed on the fp32 model: {outcome.message}")
