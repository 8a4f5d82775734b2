"""Tasks for worker processes, whoever runs them."""

from __future__ import annotations

import concurrent.futures
from concurrent.futures import BrokenExecutor, CancelledError, Future
from dataclasses import replace
from typing import Any

from quaver.engine.executors.base import Outcome, State, Task
from quaver.engine.executors.payload import RunPayload
from quaver.engine.executors.process_pool import carry_out
from quaver.engine.scoring.failures import message_of
from quaver.errors import ExecutorError


class Workers:
    """Hands tasks to a `concurrent.futures.Executor`; to a worker that does not see the files of the run, with them.

    Args:
        pool: whoever has the workers.
        site: what they need.
        jobs: how many tasks at once.
        threads: of one inference.
        deaths: what a future raises when its worker died.
    """

    isolated = True

    def __init__(
        self,
        pool: concurrent.futures.Executor,
        site: RunPayload,
        jobs: int,
        threads: int,
        deaths: tuple[type[BaseException], ...] = (),
    ) -> None:
        self.jobs = jobs
        self._pool, self._site, self._threads = pool, site, threads
        self._deaths: tuple[type[BaseException], ...] = (BrokenExecutor, CancelledError, *deaths)

    def submit(self, task: Task) -> Future[Outcome]:
        """Begin with a task, or line it up."""
        answer: Future[Outcome] = Future()
        self._send(self._site.addressed(task, self._threads), answer)
        return answer

    def _send(self, task: Task, answer: Future[Outcome]) -> None:
        try:
            future = self._pool.submit(carry_out, task)
        except Exception as error:
            raise ExecutorError(f"the executor takes no more tasks: {message_of(error)}") from error
        future.add_done_callback(lambda done: self._take(done, task, answer))

    def _take(self, done: Future[Any], task: Task, answer: Future[Outcome]) -> None:
        try:
            outcome = done.result()
            if outcome.state is State.ABSENT and task.parcel is None:
                self._send(replace(task, parcel=self._site.parcel()), answer)
                return
        except self._deaths as error:
            said = f"the worker ended while it was at it: {message_of(error)}"
            outcome = Outcome(State.DIED, error=said, said=said)
        except BaseException as error:
            said = f"workers cannot carry out tasks: {message_of(error)}"
            outcome = Outcome(State.REFUSED, error=said, said=said, exception=error)
        answer.set_result(outcome)
