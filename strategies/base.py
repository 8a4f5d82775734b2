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
    evaluates several side by side. Return when there is nothing left to try. A strategy does not decide when
    to stop: the run checks criterion and budget between trials.

    Compose strategies with `yield from Inner().propose(space, probe)`. The inner strategy has the seed and the
    objective of the run, like the outer one; set them on it (`inner.seed = self.seed + 1`) for other values.

    A strategy must be deterministic given `seed`: a resumed run starts it again and answers from the history. `fit`
    works on a copy of an instance (`copy.copy`; define `__copy__` if a shallow copy is not enough). Create the state of
    a run in `propose`.

    Attributes:
        name: what users write in `strategy=`.
        seed: the only source of chance a strategy may use.
        objective: what decides between trials that meet the criterion: "latency", "size", "int8_ops" or "user"; or
            "accuracy", if a trial must be within the `target_budget`.
        width: the number of trials that are evaluated in parallel.
    """

    name: str = ""

    @property
    def seed(self) -> int:
        """The seed of the run, or the one set on this instance. Read it in `propose`: before, there is no run."""
        own: int | None = vars(self).get("seed")
        return current().seed if own is None else own

    @seed.setter
    def seed(self, value: int) -> None:
        vars(self)["seed"] = value

    @property
    def objective(self) -> str:
        """The objective of the run, or the one set on this instance."""
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
        """The budget of the model, if the run has one instead of a criterion: then `Trial.met` says that it is kept."""
        return current().target_budget

    @property
    def width(self) -> int:
        """The number of trials evaluated in parallel: a list of this length takes the time of one."""
        return current().width

    @abstractmethod
    def propose(self, space: TuningSpace, probe: Probe) -> Proposals:
        """Yield configurations from `space`; receive a `Trial` for each."""

    def worst_case(self, space: TuningSpace) -> int | None:
        """Return the largest number of evaluations that `propose` may need; None if it has no end of its own."""
        return None

    def first_success(self, space: TuningSpace) -> int | None:
        """Return the largest number of evaluations to a first success, where there is one; None if it is unknown."""
        return self.worst_case(space)
