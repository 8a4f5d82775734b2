"""The whole contract of a strategy."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from typing import Any

from quaver.objective_traits import ObjectiveTraits, traits_of
from quaver.ops import QuantConfig
from quaver.probe import Probe
from quaver.space import TuningSpace
from quaver.strategies.context import current
from quaver.target_budget import TargetBudget

# A strategy yields one configuration and is sent its trial, or a list of them and is sent a list.
Proposals = Generator[QuantConfig | Sequence[QuantConfig], Any, None]


class Strategy(ABC):
    """Proposes configurations, one after another, and learns how each one scored.

    Write `propose` as a generator. `trial = yield config` evaluates a configuration; `trials = yield [a, b]`
    evaluates several side by side. Return when there is nothing left to try. When to stop is not its business:
    criterion and budget are looked after between trials.

    Compose strategies with `yield from Inner().propose(space, probe)`. The inner one has the seed and the objective of
    the run as the outer one has; set them on it (`inner.seed = self.seed + 1`) to give it others.

    A strategy must be deterministic given `seed`: a resumed run starts it anew and answers from the history. `fit`
    works on a copy of an instance (`copy.copy`; define `__copy__` where a shallow one will not do). Make what belongs
    to one run in `propose`.

    Attributes:
        name: what users write in `strategy=`.
        seed: the only source of chance a strategy may use.
        objective: what decides between trials that meet the criterion: "latency", "size", "int8_ops" or "user"; or
            "accuracy", if a trial meets it that is within the `ceiling`.
        width: how many trials are evaluated side by side.
    """

    name: str = ""

    @property
    def seed(self) -> int:
        """That of the run, unless one was set on this instance. Read it in `propose`: before, there is no run."""
        own: int | None = vars(self).get("seed")
        return current().seed if own is None else own

    @seed.setter
    def seed(self, value: int) -> None:
        vars(self)["seed"] = value

    @property
    def objective(self) -> str:
        """That of the run, unless one was set on this instance."""
        own: str | None = vars(self).get("objective")
        return current().objective if own is None else own

    @objective.setter
    def objective(self, value: str) -> None:
        vars(self)["objective"] = value

    @property
    def traits(self) -> ObjectiveTraits:
        """What the objective asks of a search: whether speed counts, or the size of the file."""
        return traits_of(self.objective)

    @property
    def allowed(self) -> float:
        """The loss that the criterion of the run allows, in its unit: that of `Trial.loss`."""
        return current().allowed

    @property
    def target_budget(self) -> TargetBudget | None:
        """What the model may take, if the run has a budget instead of a criterion: then `Trial.met` says it is kept."""
        return current().target_budget

    @property
    def width(self) -> int:
        """How many trials are evaluated side by side: a list of so many takes the time of one."""
        return current().width

    @abstractmethod
    def propose(self, space: TuningSpace, probe: Probe) -> Proposals:
        """Yield configurations from `space`; receive a `Trial` for each."""

    def worst_case(self, space: TuningSpace) -> int | None:
        """The most evaluations `propose` may ask for, or None if it has no end of its own."""
        return None

    def first_success(self, space: TuningSpace) -> int | None:
        """The most evaluations to a first success where one can be found, or None if nobody knows."""
        return self.worst_case(space)
