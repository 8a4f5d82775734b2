"""A run on a new version of a model starts with what won on the last one."""

from __future__ import annotations

from quaver.ops import QuantConfig
from quaver.probe import Probe
from quaver.space import TuningSpace
from quaver.strategies.base import Proposals, Strategy


class StartingFrom(Strategy):
    """Proposes a given configuration first; then another strategy goes on as it would have."""

    def __init__(self, first: QuantConfig, strategy: Strategy) -> None:
        self._first, self._strategy = first, strategy
        self.name = strategy.name

    def propose(self, space: TuningSpace, probe: Probe) -> Proposals:
        """See the class."""
        yield self._first
        yield from self._strategy.propose(space, probe)

    def worst_case(self, space: TuningSpace) -> int | None:
        """One more than the strategy needs."""
        worst = self._strategy.worst_case(space)
        return None if worst is None else worst + 1

    def first_success(self, space: TuningSpace) -> int | None:
        """One more than the strategy needs."""
        first = self._strategy.first_success(space)
        return None if first is None else first + 1
