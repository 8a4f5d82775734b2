"""The time that a run has left, as both displays tell it."""

from __future__ import annotations

import time

from quaver.engine.event_base import Event
from quaver.engine.events import (
    BaselineScored,
    Planned,
    Progressed,
    RunStarted,
    StageStarted,
    TrialFinished,
    TrialStarted,
)
from quaver.formatting import duration

# Trials of a run that stops at its first success: 13 networks took 4.2 evaluations on average, the baseline included.
# A run that has failed that often usually takes about as many trials again.
USUAL_TRIALS = 3
# An expected end differs from the latest one if it is earlier than this part of it. Judgement.
CLEARLY_EARLIER = 0.8
# The end of a search that may take longer than this is told in the log. Judgement.
TELLING_SECONDS = 10.0


class TimeLeft:
    """An observer that estimates the time that is left: of the current stage, of the search, and of the timeout."""

    def __init__(self) -> None:
        self._start, self._is_planned = time.monotonic(), False
        self._timeout, self._max_trials, self._spent = 0.0, 1, 0.0
        self._evaluation_start: float | None = None
        self._number = 0
        self._durations: list[float] = []
        self._baseline_seconds = 0.0
        self._parallel, self._running = 1, 0
        self._stage_start, self._stage_done, self._stage_total = self._start, 0, 0

    def __call__(self, event: Event) -> None:
        """Note what an event says of the time."""
        match event:
            case RunStarted(settings=settings, spent=spent):
                self._timeout, self._max_trials, self._spent = settings["timeout"], settings["max_trials"], spent
            case StageStarted():
                self._stage_start, self._stage_done, self._stage_total = time.monotonic(), 0, 0
            case Progressed(done=done, total=total):
                if total is None or done < self._stage_done:  # a stage of two rounds
                    self._stage_start = time.monotonic()
                self._stage_done, self._stage_total = done, total or 0
            case Planned(evaluations=evaluations):
                self._is_planned, self._max_trials = True, min(self._max_trials, evaluations)
            case BaselineScored(trial=trial):
                self._baseline_seconds, self._evaluation_start = trial.seconds + trial.build_seconds, None
                self._running = 0
            case TrialStarted(number=number):
                self._number, self._evaluation_start = number, time.monotonic()
                self._running += 1
                self._stage_total = 0
            case TrialFinished(trial=trial):
                self._durations.append(trial.seconds + trial.build_seconds)
                self._parallel = max(self._parallel, self._running)
                self._running = max(self._running - 1, 0)
                if not self._running:
                    self._evaluation_start = None

    def running(self) -> float | None:
        """Return the seconds since the current evaluation began; None if there is none."""
        start = self._evaluation_start
        return None if start is None else time.monotonic() - start

    def stage(self) -> float:
        """Return the seconds that the current stage has left, as far as its progress tells."""
        if not 0 < self._stage_done < self._stage_total:
            return 0.0
        elapsed = time.monotonic() - self._stage_start
        return elapsed * (self._stage_total - self._stage_done) / self._stage_done

    @property
    def may_take_long(self) -> bool:
        """True if the search may take so long that its end is worth a line."""
        return self._is_planned and self._seconds_of(self._max_trials) >= TELLING_SECONDS

    def left(self) -> str:
        """Return when the run should end, and when it must; empty while that is unknown."""
        if not self._is_planned or not (self._durations or self._baseline_seconds):
            return ""
        done = self._number - (self._evaluation_start is not None)
        latest = self._seconds_of(self._max_trials - done)
        if self._timeout > 0:
            by_timeout = max(self._timeout - self._spent - (time.monotonic() - self._start), 0.0)
            return f"{duration(by_timeout)} left" if by_timeout <= latest else f"at most about {duration(latest)} left"
        usual = min(max(USUAL_TRIALS, 2 * done), self._max_trials)
        expected = self._seconds_of(usual - done)
        if expected >= CLEARLY_EARLIER * latest:
            return f"at most about {duration(latest)} left"
        return f"about {duration(expected)} left (at most {duration(latest)})"

    def _seconds_of(self, trials: int) -> float:
        """Return the seconds that the current stage and this many trials take."""
        seconds = sum(self._durations) / len(self._durations) if self._durations else self._baseline_seconds
        mean = seconds / self._parallel
        return max(mean * max(trials, 0) - min(self.running() or 0.0, mean), 0.0) + self.stage()
