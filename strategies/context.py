"""What a run tells the strategy it drives, and all those that this one is made of."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from quaver.target_budget import TargetBudget


@dataclass(frozen=True, slots=True)
class RunContext:
    """The seed, the objective, the allowed loss, the width and the ceiling of a run; these where there is none."""

    seed: int = 0
    objective: str = "latency"
    allowed: float = 0.01
    width: int = 1
    target_budget: TargetBudget | None = None

    @contextmanager
    def active(self) -> Iterator[None]:
        """For a while, what strategies of this thread see."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)


_OUTSIDE = RunContext()
_current: ContextVar[RunContext] = ContextVar("quaver_strategy_run", default=_OUTSIDE)


def current() -> RunContext:
    """What the run under way tells, if there is one."""
    return _current.get()
