"""The budget of a search: when to stop. It is checked between trials, never in the middle of one."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

from quaver.errors import SettingsError


class StopReason(enum.StrEnum):
    """The reason that a run ended."""

    MET = "criterion met"
    NOTHING_LOST = "within the budget, and as accurate as fp32"
    TIMEOUT = "timeout reached"
    MAX_TRIALS = "max_trials reached"
    EXHAUSTED = "strategy has nothing left to propose"
    FAILURES = "three trials in a row failed"
    INTERRUPTED = "interrupted"
    UNSCORED = "not evaluated"


@dataclass(frozen=True, slots=True)
class Budget:
    """The budget of a search.

    Attributes:
        timeout: seconds. 0 stops at the first trial that meets the criterion; a larger timeout keeps improving until it
            is used up. With a target budget for the model, 0 stops at the first trial within it that loses nothing, or
            when the strategy ends.
        max_trials: the number of trials that may be evaluated in all, those of earlier, resumed runs included.
    """

    timeout: float = 0.0
    max_trials: int = 100

    def __post_init__(self) -> None:
        if not isinstance(self.timeout, int | float) or isinstance(self.timeout, bool):
            raise SettingsError(f"`timeout` must be a number of seconds, not {self.timeout!r}")
        if not math.isfinite(self.timeout) or self.timeout < 0:
            raise SettingsError(
                f"`timeout` must be 0 (stop at the first success) or more seconds, not {self.timeout!r}"
            )
        if not isinstance(self.max_trials, int) or isinstance(self.max_trials, bool) or self.max_trials < 1:
            raise SettingsError(f"`max_trials` must be a whole number of at least 1, not {self.max_trials!r}")

    def spent(self, *, evaluated: int, seconds: float, met: bool) -> StopReason | None:
        """Return the reason to stop now; None if there is none."""
        if met and self.timeout == 0:
            return StopReason.MET
        if self.timeout > 0 and seconds >= self.timeout:
            return StopReason.TIMEOUT
        if evaluated >= self.max_trials:
            return StopReason.MAX_TRIALS
        return None
