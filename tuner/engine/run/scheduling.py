"""Decide the next trial from the same facts with any number of workers, and count the time of a run."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable

from quaver.errors import HistoryError
from quaver.history import History
from quaver.trial import Trial
from quaver.types import PlainMapping


class Order:
    """Trials in the order of their dispatch, and which of them count when the next one is decided.

    Those count that were dispatched at least `width` trials earlier, and all that precede the current list of
    proposals. The order in which workers finish plays no part, so the same width gives the same trials with any number
    of workers.
    """

    def __init__(self, width: int) -> None:
        self._width = width
        self._dispatched: list[int] = []
        self._finished: dict[int, Trial | None] = {}
        self._settled = 0

    def ask(self, number: int) -> None:
        """Note that a trial is dispatched."""
        self._dispatched.append(number)

    def tell(self, trial: Trial) -> None:
        """Note that a trial is finished."""
        self._finished[trial.number] = trial

    def replay(self, trial: Trial) -> None:
        """Note a trial of an earlier run in its place. An old failure counts for nothing."""
        if trial.number not in self._finished:
            self._dispatched.append(trial.number)
            self._finished[trial.number] = trial if trial.met else None

    def mark_settled(self) -> None:
        """Note that all dispatched trials are finished, which the strategy waits for with any number of workers."""
        self._settled = len(self._dispatched)

    @property
    def must_wait(self) -> bool:
        """Return whether the next trial must wait for one that is still pending."""
        return any(number not in self._finished for number in self._counting)

    def any_counted(self, predicate: Callable[[Trial], bool]) -> bool:
        """Return whether a predicate holds for a trial that counts."""
        return any(trial is not None and predicate(trial) for trial in self._counted)

    @property
    def failures(self) -> int:
        """Return the number of failures in a row at the end of the trials that count."""
        count = 0
        for trial in self._counted:
            if trial is not None:
                count = count + 1 if trial.failed else 0
        return count

    @property
    def _counting(self) -> list[int]:
        return self._dispatched[: max(self._settled, len(self._dispatched) - self._width + 1)]

    @property
    def _counted(self) -> Iterable[Trial | None]:
        return [self._finished.get(number) for number in self._counting]


# The note that holds the seconds used so far, for a resumed run.
NOTE = "run.seconds"
# Seconds between two notes during a long measurement. Judgement: a killed run loses no more than this of its count.
SAVE_INTERVAL = 10.0


class Clock:
    """The time that a run used, including earlier runs of the same history. It starts when it is created."""

    def __init__(self) -> None:
        self._start = self._noted = time.monotonic()
        self._earlier = 0.0

    @property
    def seconds(self) -> float:
        """Return the seconds used so far."""
        return self._earlier + time.monotonic() - self._start

    def go_on(self, history: History) -> None:
        """Add the time that earlier runs used."""
        self._earlier = used(history.notes, history.trials)

    def keep(self, history: History, interval: float = 0.0) -> None:
        """Note the seconds in the history, unless that was done in the last `interval` seconds."""
        now = time.monotonic()
        if now - self._noted >= interval and history.header is not None:
            self._noted = now
            with contextlib.suppress(HistoryError):  # the next record reports the same error
                history.note(NOTE, self.seconds)


def used(notes: PlainMapping, trials: Iterable[Trial]) -> float:
    """Return the seconds that earlier runs used: as noted, but at least those of the trials, if a run was killed."""
    noted = notes.get(NOTE, 0.0)
    seconds = float(noted) if isinstance(noted, int | float) else 0.0
    return max(seconds, sum(trial.seconds + trial.build_seconds for trial in trials))
