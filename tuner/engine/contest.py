"""Who wins among trials that meet the criterion: the one rule for figures that are measured, and may be off."""

from __future__ import annotations

import heapq
import math
from typing import NamedTuple

from quaver.engine.objective import Objective
from quaver.trial import Trial


class _Entry(NamedTuple):
    """A trial in the order in which ties are broken: more reduced ops, then less loss, then the lower number."""

    not_reduced: int
    loss: float
    number: int
    at_best: float
    trial: Trial


class Contest:
    """Trials that meet the criterion, as they come. The winner follows from all of them, whatever their order.

    A figure lies within its margin. Some trial is certain to have one no larger than its upper end; all that may be as
    good, by the lower ends of theirs, are tied. A tie goes to the trial with more reduced ops, then to the more
    accurate, then to the lower number: never to chance.
    """

    def __init__(self, objective: Objective) -> None:
        self._objective = objective
        self._certain = math.inf
        self._entries: list[_Entry] = []

    def add(self, trial: Trial) -> Trial:
        """Take part; the winner so far. Who is beaten for certain stays so, and is dropped."""
        at_best, at_worst = bounds(self._objective, trial)
        self._certain = min(self._certain, at_worst)
        loss = trial.loss or 0.0
        heapq.heappush(self._entries, _Entry(-trial.config.reduced_count, loss, trial.number, at_best, trial))
        while self._entries[0].at_best > self._certain:
            heapq.heappop(self._entries)
        return self._entries[0].trial


def bounds(objective: Objective, trial: Trial) -> tuple[float, float]:
    """Between what the figure of a trial lies."""
    value, margin = objective.value(trial), objective.margin(trial)
    off = margin * abs(value) if margin else 0.0
    return value - off, value + off
