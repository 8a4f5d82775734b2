"""Time of a search by the number of workers, from 1 to 1,000: real loop and strategies, simulated workers and clock.

python -m benchmarks.simulated_workers   # seconds; the table of docs/scaling.md
"""

from __future__ import annotations

import random
import tempfile
from collections import namedtuple
from collections.abc import Iterable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from benchmarks import result_files
from quaver.budget import Budget
from quaver.criterion import Criterion
from quaver.engine.executors.base import Evaluation, Outcome, State, Task
from quaver.engine.observers import silent
from quaver.engine.run.loop import drive
from quaver.engine.run.run import Run
from quaver.engine.run.run_setup import RunSetup
from quaver.engine.timing.objective import Int8Ops
from quaver.history import Header, History
from quaver.scores import Score
from quaver.strategies import make_strategy, prepared
from quaver.testing import SimulatedModel

WORKERS = (1, 2, 4, 8, 16, 64, 256, 1000)
# Seconds of an evaluation, and by what part of it one differs from another.
SECONDS, SPREAD = 60.0, 0.2
# What a task costs besides, in seconds.
OVERHEAD = 0.01

Done = namedtuple("Done", "done")


class SimulatedWorkers:
    """Evaluate in no time at all, and count what it would have taken.

    Attributes:
        seconds: on the clock.
    """

    isolated = True

    def __init__(self, model: SimulatedModel, jobs: int) -> None:
        self.jobs, self.seconds = jobs, 0.0
        self._model, self._ops = model, model.space.ops
        self._ends: dict[Future[Outcome], tuple[float, Outcome]] = {}

    def submit(self, task: Task) -> Future[Outcome]:
        """Begin with a task."""
        config = task.config(self._ops)
        score = self._model.baseline if config is None else self._model.score(config)
        took = SECONDS * random.Random(task.number).uniform(1 - SPREAD, 1 + SPREAD)
        future: Future[Outcome] = Future()
        evaluation = Evaluation(Score(score), took, OVERHEAD, "simulated", 1, worker="simulated:1", started=1.0)
        outcome = Outcome(State.DONE, evaluation)
        self._ends[future] = self.seconds + took + OVERHEAD, outcome
        return future

    def wait(self, futures: Iterable[Future[Outcome]], timeout: float | None = None, return_when: str = "") -> Done:
        """Move the clock to the end of the next one."""
        future = min(futures, key=lambda one: self._ends[one][0])
        self.seconds, outcome = self._ends.pop(future)
        future.set_result(outcome)
        return Done({future})


class _NoModel:
    """An adapter that nothing is asked of."""

    probe_samples = ()

    def unquantizable(self, timed: bool = False) -> tuple[()]:
        return ()


def simulate(
    strategy: str, model: SimulatedModel, workers: int, most: int = 1000, first: bool = True
) -> dict[str, Any]:
    """One run: evaluations, and hours on the clock."""
    criterion, adapter = Criterion(), _NoModel()
    executor = SimulatedWorkers(model, workers)
    with tempfile.TemporaryDirectory() as folder, History.create(Path(folder) / "history.snapshot") as history:
        history.begin(Header("simulated", "simulated", model.space.ops, {}, "now"))
        history.start_run({}, {})
        budget = Budget(0.0 if first else 1e9, most)
        setup = RunSetup(adapter, model.space, criterion, budget, Int8Ops(), history, silent, width=workers)  # type: ignore[arg-type]
        run = Run(setup)
        chosen = prepared(
            make_strategy(strategy), seed=1, objective="int8_ops", allowed=criterion.allowed, width=workers
        )
        run.begin(chosen, model.probe)
        drive(run, executor, silent, wait=executor.wait)
        return {
            "strategy": strategy,
            "workers": workers,
            "evaluations": run.judge.evaluated + 1,
            "hours": executor.seconds / 3600,
            "met": run.judge.met,
        }


def table(strategy: str, first: bool, most: int = 1000, workers: Iterable[int] = WORKERS) -> list[dict[str, Any]]:
    """All numbers of workers, for a model of 200 ops of which 12 cost too much, and whose ranking tells nothing."""
    model = SimulatedModel(ops=200, culprits=12, damage=0.004, ranking="useless", seed=3)
    rows = [simulate(strategy, model, count, most, first) for count in workers]
    return [{**row, "times faster": rows[0]["hours"] / row["hours"]} for row in rows]


def run() -> list[dict[str, Any]]:
    """Time to a first success, and time of a whole sweep."""
    return [*table("auto", True), *table("basic", False), *table("bayesian", True, 60, (1, 2, 4, 8, 16))]


def main() -> None:
    """Simulate, print and write the figures."""
    rows = [*table("auto", True), *table("basic", False)]
    for row in rows:
        print("  ".join(f"{value:.3g}" if isinstance(value, float) else str(value) for value in row.values()))
    result_files.write("simulated_workers", "Simulated time of a search by the number of workers", rows)


if __name__ == "__main__":
    main()
