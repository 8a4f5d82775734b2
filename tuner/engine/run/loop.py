"""The one loop: ask, let an executor evaluate, tell. It knows neither which strategy runs nor which executor."""

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
    """Score what a run asks for until it is over. Ctrl-C ends it with what there is, once there is a baseline.

    `wait` is that of `concurrent.futures`, unless time is simulated.
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
class _UnderWay:
    """A trial that a worker has.

    Attributes:
        pending: the trial.
        again: whether it is the second try, after a worker that died.
        since: when it was submitted.
        warned: after how many seconds the observer is told that it is slow.
    """

    pending: PendingTrial
    again: bool
    since: float
    warned: float


class _Loop:
    """What is under way, and who is under suspicion.

    When a worker dies its trial is run again, once, while no other is: it may have been the others that took all the
    memory. If that worker dies, too, it is the trial.
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
        self._under_way: dict[Future[Outcome], _UnderWay] = {}
        self._suspects: deque[PendingTrial] = deque()

    def go(self) -> None:
        """Until the run is over."""
        while True:
            self._dispatch()
            if not self._under_way:
                return
            done = self._wait(self._under_way, self._until_slow(), return_when=FIRST_COMPLETED).done
            for future in sorted(done, key=lambda future: self._under_way[future].pending.number):
                one = self._under_way.pop(future)
                self._take(one, future.result())

    def _dispatch(self) -> None:
        if self._suspects:
            if not self._under_way:
                self._submit(self._suspects.popleft(), again=True)
            return
        while len(self._under_way) < self._executor.jobs and (pending := self._run.next()) is not None:
            self._submit(pending)

    def _submit(self, pending: PendingTrial, again: bool = False) -> None:
        seconds = limit(self._limit, self._run.usual())
        task = Task.of(pending.number, pending.config if pending.number else None)
        begin = time.monotonic()
        future = self._executor.submit(replace(task, seconds=seconds, reference=self._run.reference))
        self._under_way[future] = _UnderWay(pending, again, begin, slow_after(self._run.usual()))

    def _until_slow(self) -> float | None:
        """Tell of trials that take far longer than the baseline did; seconds until the next one may have to be told of.

        It may hang, but nothing is done about that here.
        """
        usual, now = self._run.usual(), time.monotonic()
        if usual is None or not self._executor.isolated:  # in this process, nothing could be told of it here
            return None
        for one in self._under_way.values():
            if now - one.since >= one.warned:
                one.warned *= 2
                self._observer(TrialSlow(one.pending.number, now - one.since, usual))
        return max(min(one.since + one.warned for one in self._under_way.values()) - now, 0.01)

    def _take(self, one: _UnderWay, outcome: Outcome) -> None:
        pending = one.pending
        if outcome.state is State.REFUSED:
            raise ExecutorError(outcome.said) from outcome.exception
        if outcome.state is State.DIED and not one.again:
            log.warning("trial %d: %s; it is run again by itself", pending.number, outcome.said)
            self._suspects.append(pending)
            return
        if outcome.state is State.FULL:
            raise HistoryError(
                f"there is no space left for trial {pending.number}: {outcome.said}. It does not count. Free some "
                f"space, then continue with fit(..., resume={str(self._run.history.path)!r})"
            ) from outcome.exception
        if outcome.state is not State.DONE and pending.number == 0:
            raise _no_baseline(outcome) from outcome.exception
        if outcome.state is State.DIED:
            outcome = replace(outcome, error=f"its worker died twice. At last {outcome.error}")
        self._run.record(pending, outcome)


def _no_baseline(outcome: Outcome) -> QuaverError:
    """Any trouble with the fp32 model is the user's to mend at once."""
    if isinstance(outcome.exception, EvaluationError) or outcome.said.startswith("eval_func returned"):
        return EvaluationError(f"on the fp32 model {outcome.said}")
    if outcome.state is not State.FAILED:
        return EvaluationError(f"eval_func gave no score for the fp32 model: {outcome.error}")
    return EvaluationError(f"eval_func failed on the fp32 model: {outcome.said}")
