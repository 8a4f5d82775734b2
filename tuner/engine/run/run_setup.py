"""Everything that a run needs, as one record."""

from __future__ import annotations

from dataclasses import dataclass

from quaver.adapters import Adapter
from quaver.budget import Budget
from quaver.criterion import Criterion
from quaver.engine.observers import Observer
from quaver.engine.run.scheduling import Clock
from quaver.engine.timing.objective import Objective
from quaver.history import History
from quaver.space import TuningSpace

# The default `early_stop_delta`: the maximum probability of wrongly stopping a trial that would pass. 0.05 is the usual
# significance level; benchmarks/early_stop.py measures what it saves.
DELTA = 0.05


@dataclass(frozen=True)
class RunSetup:
    """Everything that a run needs.

    Attributes:
        adapter: builds models.
        space: the configurations to choose from.
        criterion: the accuracy to keep.
        budget: when to stop.
        objective: decides between trials that meet the criterion.
        history: records everything.
        observer: is told of events.
        clock: measures the time of the run; None starts one that includes earlier runs.
        width: how many trials a strategy proposes at once.
        early_stop_delta: the maximum probability of wrongly stopping a trial that would pass; None stops none.
    """

    adapter: Adapter
    space: TuningSpace
    criterion: Criterion
    budget: Budget
    objective: Objective
    history: History
    observer: Observer
    clock: Clock | None = None
    width: int = 1
    early_stop_delta: float | None = DELTA
