"""The default executor: it evaluates each trial at once, in the process of the run."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

from quaver.engine.executors.base import Outcome, Task
from quaver.engine.executors.evaluate import evaluate_model
from quaver.engine.scoring.evaluate import watched
from quaver.types import EvalFunc


class InProcess:
    """Calls eval_func when a task is submitted. Ctrl-C passes through and ends the run.

    Args:
        eval_func: scores a model.
        on_slow: called with the number of a trial and its seconds when it takes far longer than usual.
    """

    jobs = 1
    isolated = False

    def __init__(
        self, eval_func: EvalFunc, on_slow: Callable[[int, float], None] = lambda number, seconds: None
    ) -> None:
        self._eval_func, self._on_slow = eval_func, on_slow

    def submit(self, task: Task) -> Future[Outcome]:
        """Score the trial."""
        assert task.build is not None
        if task.number == 0:
            task.build()  # if the fp32 model cannot be built, the run ends with that error
        watch = watched(task.usual, lambda seconds: self._on_slow(task.number, seconds))
        outcome = evaluate_model(task.build, self._eval_func, task.reference, watch)
        if isinstance(outcome.exception, KeyboardInterrupt):
            raise outcome.exception
        future: Future[Outcome] = Future()
        future.set_result(outcome)
        return future
