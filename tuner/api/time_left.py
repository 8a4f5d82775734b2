"""How long a run may still take, as far as anyone can tell."""

from __future__ import annotations

import time

from quaver.api import wording
from quaver.trial import Trial


class TimeLeft:
    """Told what happens, it says what is left.

    Args:
        timeout: seconds that the run may take; 0 is no timeout.
        most: trials that it may make.
        spent: seconds of the timeout that earlier, resumed runs have used.
    """

    def __init__(self, timeout: float, most: int, spent: float) -> None:
        self._timeout, self._most, self._spent = timeout, most, spent
        self._made, self._planned = time.monotonic(), False
        self._begun: float | None = None
        self._number = 0
        self._taken: list[float] = []
        self._usual = 0.0
        self._beside = 1

    def planned(self, evaluations: int) -> None:
        """The tuning begins, with at most so many evaluations."""
        self._planned = True
        self._most = min(self._most, evaluations)

    def usual(self, trial: Trial) -> None:
        """The baseline's seconds, for want of better."""
        self._usual, self._begun = trial.seconds + trial.build_seconds, None

    def evaluating(self, number: int) -> None:
        """An evaluation begins."""
        self._number, self._begun = number, time.monotonic()

    def tried(self, trial: Trial, others: int = 0) -> None:
        """An evaluation is over; so many others are still under way."""
        self._taken.append(trial.seconds + trial.build_seconds)
        self._beside = max(self._beside, others + 1)
        if not others:
            self._begun = None

    def running(self) -> float | None:
        """Seconds since the current evaluation began."""
        begun = self._begun
        return None if begun is None else time.monotonic() - begun

    def left(self) -> str:
        """In words, what is left of the timeout or, without one, of the trials; empty while nobody knows."""
        if not self._planned or not (self._taken or self._usual):
            return ""
        mean = (sum(self._taken) / len(self._taken) if self._taken else self._usual) / self._beside
        running = self.running() or 0.0
        done = self._number - (self._begun is not None)
        by_trials = max(mean * max(self._most - done, 0) - min(running, mean), 0.0)
        if self._timeout > 0:
            by_timeout = max(self._timeout - self._spent - (time.monotonic() - self._made), 0.0)
            if by_timeout <= by_trials:
                return f"{wording.seconds(by_timeout)} left"
        return f"at most about {wording.seconds(by_trials)} left"
