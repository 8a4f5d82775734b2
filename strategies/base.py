"""The whole contract of a strategy."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from typing import Any, ClassVar

from quaver.ops import QuantConfig
from quaver.probe import Probe
from quaver.space import TuningSpace

# A strategy yields one configuration and is sent its trial, or a list of them and is sent a list.
Proposals = Generator[QuantConfig | Sequence[QuantConfig], Any, None]


class Strategy(ABC):
    """Proposes configurations, one after another, and learns how each one scored.

    Write `propose` as a generator. `trial = yield config` evaluates a configuration; `trials = yield [a, b]`
    evaluates several side by side. Return when there is nothing left to try. When to stop is not its business:
    criterion and budget are looked after between trials. Compose strategies with `yield from`.

    A strategy must be deterministic given `seed`: a resumed run starts it anew and answers from the history.

    Attributes:
        name: what users write in `strategy=`.
        seed: set before `propose` is called; the only source of chance a strategy may use.
        objective: set before `propose` is called; what decides between trials that meet the criterion:
            "latency", "size", "int8_ops" or "user".
    """

    name: ClassVar[str] = ""
    seed: int = 0
    objective: str = "latency"

    @abstractmethod
    def propose(self, space: TuningSpace, probe: Probe) -> Proposals:
        """Yield configurations from `space`; receive a `Trial` for each."""

    def worst_case(self, space: TuningSpace) -> int | None:
        """The most evaluations `propose` may ask for, or None if it has no end of its own."""
        return None

    def first_success(self, space: TuningSpace) -> int | None:
        """The most evaluations to a first success where one can be found, or None if nobody knows."""
        return self.worst_case(space)
