"""What a run tells the strategy it drives, and all those that this one is made of."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RunContext:
    """The seed, the objective, the allowed loss and the width of a run. These hold where no run is under way."""

    seed: int = 0
    objective: str = "latency"
    allowed: float = 0.01
    width: int = 1

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
