"""The default: tasks are carried out at once, in the process of the run."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future

from quaver.adapters import Model
from quaver.engine.executors.base import Outcome, State, Task
from quaver.engine.executors.errors import want_of_space
from quaver.engine.scoring.evaluate import score, watched
from quaver.engine.scoring.failures import message_of, traceback_of
from quaver.types import EvalFunc


class InProcess:
    """Calls eval_func when a task is submitted. Ctrl-C comes through.

    Args:
        eval_func: the user's.
        model_of: builds the model of a trial, by its number.
        usual: seconds that an evaluation usually takes, if that is known.
        slow: told of a trial and its seconds when it takes far longer than usual.
    """

    jobs = 1
    isolated = False

    def __init__(
        self,
        eval_func: EvalFunc,
        model_of: Callable[[int], Model],
        usual: Callable[[], float | None] = lambda: None,
        slow: Callable[[int, float], None] = lambda number, seconds: None,
    ) -> None:
        self._eval_func, self._model_of, self._usual, self._slow = eval_func, model_of, usual, slow

    def submit(self, task: Task) -> Future[Outcome]:
        """Score the trial."""
        future: Future[Outcome] = Future()
        future.set_result(self._scored(task))
        return future

    def _scored(self, task: Task) -> Outcome:
        begin = built = time.monotonic()
        if task.number == 0:
            self._model_of(0)  # if even the fp32 model cannot be built, there is nothing to go on with
        try:
            model = self._model_of(task.number)
            built = time.monotonic()
            with watched(self._usual(), lambda seconds: self._slow(task.number, seconds)):
                found = score(self._eval_func, model, task.reference)
            done = time.monotonic()
            digest, size = model.sha256, model.size  # a model that cannot be written out is a failed trial, too
        except KeyboardInterrupt:  # Ctrl-C ends the run, with what there is
            raise
        except BaseException as error:  # sys.exit in eval_func does not
            state = State.FULL if want_of_space(error) else State.FAILED
            spent = time.monotonic() - built
            return Outcome(
                state,
                seconds=spent,
                build_seconds=built - begin,
                error=traceback_of(error),
                said=message_of(error),
                exception=error,
            )
        building = built - begin + time.monotonic() - done
        return Outcome(
            State.DONE,
            score=found,
            seconds=done - built,
            build_seconds=building,
            model_hash=digest,
            model_size=size,
        )
