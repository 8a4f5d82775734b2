"""Prepare a strategy for a run, as `fit` and `drive` do."""

from __future__ import annotations

from quaver.ops import QuantConfig
from quaver.probe import Probe
from quaver.space import TuningSpace
from quaver.strategies.base import Proposals, Strategy
from quaver.strategies.context import RunContext
from quaver.strategies.float_precision import FloatPrecision
from quaver.target_budget import TargetBudget


def prepared(
    strategy: Strategy,
    *,
    seed: int,
    objective: str,
    allowed: float = 0.01,
    width: int = 1,
    target_budget: TargetBudget | None = None,
) -> Strategy:
    """Return the strategy for a run: it and the strategies it delegates to with `yield from` see the run's context.

    Nothing is set on the strategy. The context is active only while the strategy is called, so that several runs can
    alternate in one thread, and a run can move from one thread to another.
    """
    return _Prepared(FloatPrecision(strategy), RunContext(seed, objective, allowed, width, target_budget))


class _Prepared(Strategy):
    """Calls a strategy within the context of a run."""

    def __init__(self, strategy: Strategy, context: RunContext) -> None:
        self.name = strategy.name or type(strategy).__name__
        self._strategy, self._context = strategy, context

    @property
    def continues_after_success(self) -> bool:  # type: ignore[override]  # a strategy may change it while it works
        return self._strategy.continues_after_success

    def propose(self, space: TuningSpace, probe: Probe) -> Proposals:
        with self._context.active():
            proposals = self._strategy.propose(space, probe)
        # The loop reports a result that is not a generator.
        return self._delegate(proposals) if hasattr(proposals, "send") else proposals

    def worst_case(self, space: TuningSpace) -> int | None:
        with self._context.active():
            return self._strategy.worst_case(space)

    def first_success(self, space: TuningSpace) -> int | None:
        with self._context.active():
            return self._strategy.first_success(space)

    def _delegate(self, proposals: Proposals) -> Proposals:
        answer = None
        try:
            while True:
                with self._context.active():
                    try:
                        proposal = proposals.send(answer)
                    except StopIteration:
                        return
                answer = yield proposal
        finally:
            with self._context.active():
                proposals.close()


class StartingFrom(Strategy):
    """Proposes one configuration first, then continues with another strategy."""

    def __init__(self, first: QuantConfig, strategy: Strategy) -> None:
        self._first, self._strategy = first, strategy
        self.name = strategy.name

    @property
    def continues_after_success(self) -> bool:  # type: ignore[override]  # a strategy may change it while it works
        """Return what the strategy says."""
        return self._strategy.continues_after_success

    def propose(self, space: TuningSpace, probe: Probe) -> Proposals:
        """Propose configurations as described in the class."""
        yield self._first
        yield from self._strategy.propose(space, probe)

    def worst_case(self, space: TuningSpace) -> int | None:
        """Return one more than the strategy needs."""
        worst = self._strategy.worst_case(space)
        return None if worst is None else worst + 1

    def first_success(self, space: TuningSpace) -> int | None:
        """Return one more than the strategy needs."""
        first = self._strategy.first_success(space)
        return None if first is None else first + 1
