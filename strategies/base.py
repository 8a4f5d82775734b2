"""The contract of a strategy."""

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
    """Propose configurations, one after another, and receive the trial of each.

    Write `propose` as a generator. `trial = yield config` evaluates a configuration; `trials = yield [a, b]`
    evaluates several in parallel. Return if there is nothing left to try. The run checks criterion and budget between
    trials, and decides when to stop.

    Compose strategies with `yield from Inner().propose(space, probe)`. The inner strategy has the seed and objective of
    the run, too. Set them on it (`inner.seed = self.seed + 1`) to give it others.

    A strategy must be deterministic given `seed`: a resumed run restarts it and answers from the history. `fit`
    works on a copy of an instance (`copy.copy`; define `__copy__` if a shallow copy is not enough). Create the state of
    a run in `propose`.

    Attributes:
        name: what users write in `strategy=`.
        seed: the only source of randomness that a strategy may use.
        objective: what ranks the trials that meet the criterion: "latency", "size", "int8_ops" or "user". It is
            "accuracy" in a run with a `target_budget`.
        width: number of trials that are evaluated in parallel.
        continues_after_success: True if a run without a timeout continues after a success, until the strategy ends. It
            is read before each trial, so `propose` may set it for a part of the search.
    """

    name: str = ""
    continues_after_success: bool = False

    @property
    def seed(self) -> int:
        """Return the seed of the run, unless this instance has its own. Read it in `propose`."""
        own: int | None = vars(self).get("seed")
        return current().seed if own is None else own

    @seed.setter
    def seed(self, value: int) -> None:
        vars(self)["seed"] = value

    @property
    def objective(self) -> str:
        """Return the objective of the run, unless this instance has its own."""
        own: str | None = vars(self).get("objective")
        return current().objective if own is None else own

    @objective.setter
    def objective(self, value: str) -> None:
        vars(self)["objective"] = value

    @property
    def traits(self) -> ObjectiveTraits:
        """Return what the objective rewards: speed, or the size of the file."""
        return traits_of(self.objective)

    @property
    def allowed(self) -> float:
        """Return the loss that the criterion of the run allows, in the unit of `Trial.loss`."""
        return current().allowed

    @property
    def target_budget(self) -> TargetBudget | None:
        """Return the target budget of the run, or None. `Trial.met` tells whether a trial is within it."""
        return current().target_budget

    @property
    def width(self) -> int:
        """Return the number of parallel trials: a list of this length takes the time of one trial."""
        return current().width

    @abstractmethod
    def propose(self, space: TuningSpace, probe: Probe) -> Proposals:
        """Yield configurations from `space`; receive a `Trial` for each."""

    def worst_case(self, space: TuningSpace) -> int | None:
        """Return the largest number of evaluations of `propose`, or None if it has no natural end."""
        return None

    def first_success(self, space: TuningSpace) -> int | None:
        """Return the largest number of evaluations to the first success, if there is one; None if it is unknown."""
        return self.worst_case(space)
