"""Send tasks to worker processes, whoever runs them."""

from __future__ import annotations

import concurrent.futures
from concurrent.futures import BrokenExecutor, CancelledError, Future
from dataclasses import replace
from typing import Any

from quaver.engine.executors.base import Evaluation, Outcome, State, Task
from quaver.engine.executors.payload import RunPayload
from quaver.engine.executors.process_pool import carry_out
from quaver.engine.scoring.failures import message_of
from quaver.errors import ExecutorError


class Workers:
    """Sends tasks to a `concurrent.futures.Executor`, with the files of the run for workers that do not see them.

    Args:
        pool: has the workers.
        payload: the files that workers need.
        jobs: how many tasks run at once.
        threads: threads of one inference.
        deaths: what a future raises when its worker died.
    """

    isolated = True

    def __init__(
        self,
        pool: concurrent.futures.Executor,
        payload: RunPayload,
        jobs: int,
        threads: int,
        deaths: tuple[type[BaseException], ...] = (),
    ) -> None:
        self.jobs = jobs
        self._pool, self._payload, self._threads = pool, payload, threads
        self._deaths: tuple[type[BaseException], ...] = (BrokenExecutor, CancelledError, *deaths)

    def submit(self, task: Task) -> Future[Outcome]:
        """Start a task, or queue it."""
        answer: Future[Outcome] = Future()
        self._send(self._payload.addressed(task, self._threads), answer)
        return answer

    def _send(self, task: Task, answer: Future[Outcome]) -> None:
        try:
            future = self._pool.submit(carry_out, task)
        except Exception as error:
            raise ExecutorError(f"the executor takes no more tasks: {message_of(error)}") from error
        future.add_done_callback(lambda done: self._receive(done, task, answer))

    def _receive(self, done: Future[Any], task: Task, answer: Future[Outcome]) -> None:
        try:
            outcome: Outcome = done.result()
            if outcome.state is State.ABSENT and task.archive is None:
                self._send(replace(task, archive=self._payload.archive()), answer)
                return
        except self._deaths as error:
            message = f"the worker ended during the task: {message_of(error)}"
            outcome = Outcome(State.DIED, Evaluation(error=message), message)
        except BaseException as error:
            message = f"workers cannot carry out tasks: {message_of(error)}"
            outcome = Outcome(State.REFUSED, Evaluation(error=message), message, exception=error)
        answer.set_result(outcome)
