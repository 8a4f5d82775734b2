"""Measure without labels in workers: output errors of many configurations in parallel, or one at a time."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from pathlib import Path

from quaver.adapters import Adapter, AdapterOptions
from quaver.engine.executors.base import Executor, Kind, Outcome, State, Task
from quaver.engine.executors.payload import RunPayload
from quaver.engine.executors.process_pool import LocalPool
from quaver.engine.executors.remote import Workers
from quaver.engine.run.crashes import MAX_DEATHS
from quaver.errors import ExecutorError
from quaver.ops import QuantConfig
from quaver.types import ModelLike, PlainDict

# Tasks per worker that are submitted at once, so that no worker is idle between two of them. Judgement: one waits while
# one runs.
PREFETCH = 2


@contextlib.contextmanager
def measuring_worker(
    workspace: Path, adapter: Adapter, calibration: PlainDict, model: ModelLike, options: AdapterOptions
) -> Iterator[Executor]:
    """Open a worker process of this machine that measures on the same number of threads as the run."""
    with RunPayload.opened(workspace, adapter, calibration, model, options, eval_func=None) as site:
        pool = LocalPool(1)
        try:
            yield Workers(pool, site, 1, options.threads)
        finally:
            pool.shutdown()


def measured_beside(
    executor: Executor,
    configs: Mapping[str, QuantConfig],
    samples: int,
    check_time: Callable[[], None],
    deaths: Callable[[QuantConfig], int] = lambda config: 0,
    is_fatal: Callable[[QuantConfig], bool] = lambda config: False,
) -> Iterator[tuple[str, float | None]]:
    """Yield the output error of each configuration by name, in the order in which workers finish.

    One whose worker dies is measured again. It has no error, None, after `MAX_DEATHS` deaths, those of earlier runs
    (`deaths`) included, or once `is_fatal` says so.
    """
    waiting = [(key, config, deaths(config)) for key, config in configs.items()][::-1]
    under_way: dict[Future[Outcome], tuple[str, QuantConfig, int]] = {}
    while waiting or under_way:
        check_time()
        while waiting and len(under_way) < PREFETCH * executor.jobs:
            key, config, died = waiting.pop()
            if is_fatal(config):
                yield key, None
                continue
            under_way[executor.submit(Task.of(0, config, Kind.ERROR, samples))] = key, config, died
        for future in wait(under_way, return_when=FIRST_COMPLETED).done if under_way else ():
            key, config, died = under_way.pop(future)
            outcome = future.result()
            if outcome.state is State.DONE:
                yield key, outcome.result
            elif outcome.state is State.DIED and died + 1 < MAX_DEATHS:
                waiting.append((key, config, died + 1))
            elif outcome.state is State.DIED:
                yield key, None
            else:
                raise ExecutorError(f"a worker could not measure an op: {outcome.message or outcome.evaluation.error}")
