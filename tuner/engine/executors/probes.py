"""Measurements without labels, side by side: as many models as there are ops, none of which needs another."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait

from quaver.engine.executors.task import Executor, Kind, Outcome, State, Task
from quaver.errors import ExecutorError
from quaver.ops import QuantConfig

# Of a worker that has several tasks waiting none is idle between them.
AHEAD = 2


def measured_beside(
    executor: Executor, configs: Mapping[str, QuantConfig], samples: int, check_time: Callable[[], None]
) -> Iterator[tuple[str, float]]:
    """The error of each configuration at the outputs, by name, as they come.

    One whose worker dies is measured again, and is as wrong as can be if that dies, too.
    """
    waiting = [(key, config, 1) for key, config in configs.items()][::-1]
    under_way: dict[Future[Outcome], tuple[str, QuantConfig, int]] = {}
    while waiting or under_way:
        check_time()
        while waiting and len(under_way) < AHEAD * executor.jobs:
            key, config, attempt = waiting.pop()
            under_way[executor.submit(Task.of(0, config, Kind.ERROR, samples))] = key, config, attempt
        for future in wait(under_way, return_when=FIRST_COMPLETED).done:
            key, config, attempt = under_way.pop(future)
            outcome = future.result()
            if outcome.state is State.DONE:
                yield key, outcome.value
            elif outcome.state is State.DIED and attempt == 1:
                waiting.append((key, config, 2))
            elif outcome.state is State.DIED:
                yield key, math.inf
            else:
                raise ExecutorError(f"a worker could not measure an op: {outcome.said or outcome.error}")
