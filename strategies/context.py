"""The context of a run, which a strategy and all strategies inside it can read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from quaver.target_budget import TargetBudget


@dataclass(frozen=True, slots=True)
class RunContext:
    """The seed, objective, allowed loss, width and target budget of a run, or the defaults outside one."""

    seed: int = 0
    objective: str = "latency"
    allowed: float = 0.01
    width: int = 1
    target_budget: TargetBudget | None = None

    @contextmanager
    def active(self) -> Iterator[None]:
        """Make this the context of the strategies of this thread, inside the block."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)


_OUTSIDE = RunContext()
_current: ContextVar[RunContext] = ContextVar("quaver_strategy_run", default=_OUTSIDE)


def current() -> RunContext:
    """Return the context of the run that is driving, or the defaults outside one."""
    return _current.get()
