"""The same behaviour of every executor, and a check that sees when one does otherwise."""

from __future__ import annotations

from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from clusters import dask_cluster

from quaver.engine.executors.base import Evaluation, Outcome, State
from quaver.scores import Score
from quaver.testing import check_executor


def test_the_process_of_the_run_keeps_the_contract() -> None:
    check_executor()


def test_processes_of_loky_keep_it() -> None:
    check_executor(n_jobs=2)


def test_one_isolated_process_keeps_it() -> None:
    check_executor(isolate=True)


def test_an_executor_of_the_users_keeps_it() -> None:
    with ThreadPoolExecutor(3) as executor:
        check_executor(executor)


def test_workers_of_dask_in_separate_processes_keep_it(tmp_path: Path) -> None:
    with dask_cluster(tmp_path) as address:
        check_executor(backend="dask", scheduler=address)


class Forging(Executor):
    """Makes scores up."""

    def submit(self, function: Any, /, *args: Any, **keywords: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(Outcome(State.DONE, Evaluation(Score(0.5), model_hash="made up", worker="nobody:0")))
        return future


def test_one_that_makes_scores_up_is_found_out() -> None:
    with pytest.raises(AssertionError, match="the trials differ from those in this process"):
        check_executor(Forging())
