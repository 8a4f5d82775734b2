"""What is known when the next trial is decided about: the same, however fast each of several workers is."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable

from quaver.errors import HistoryError
from quaver.history import History
from quaver.trial import Trial
from quaver.types import PlainMapping


class Order:
    """Trials in the order they were asked for, and which of them count.

    Whether a run goes on is decided by the trials that were asked for `width` or more before the next one, and by all
    that came before the list at hand: never by who came first. So the same width gives the same trials on any number
    of workers.
    """

    def __init__(self, width: int) -> None:
        self._width = width
        self._asked: list[int] = []
        self._told: dict[int, Trial | None] = {}
        self._settled = 0

    def ask(self, number: int) -> None:
        """A trial is handed out."""
        self._asked.append(number)

    def tell(self, trial: Trial) -> None:
        """A trial is over."""
        self._told[trial.number] = trial

    def replay(self, trial: Trial) -> None:
        """A trial of an earlier run takes its place. If it failed, that is no news."""
        if trial.number not in self._told:
            self._asked.append(trial.number)
            self._told[trial.number] = trial if trial.met else None

    def mark_settled(self) -> None:
        """All that were asked for are told: the strategy waits until then, whoever the workers are."""
        self._settled = len(self._asked)

    @property
    def must_wait(self) -> bool:
        """Whether the next one cannot be decided about yet."""
        return any(number not in self._told for number in self._counting)

    def any_counted(self, so: Callable[[Trial], bool]) -> bool:
        """Whether something is so of one of those that count."""
        return any(trial is not None and so(trial) for trial in self._known)

    @property
    def failures(self) -> int:
        """How many of those that count have failed at last, in a row."""
        count = 0
        for trial in self._known:
            if trial is not None:
                count = count + 1 if trial.failed else 0
        return count

    @property
    def _counting(self) -> list[int]:
        return self._asked[: max(self._settled, len(self._asked) - self._width + 1)]

    @property
    def _known(self) -> Iterable[Trial | None]:
        return [self._told.get(number) for number in self._counting]


# The note that keeps the seconds for a resumed run, and how often it is written while something long goes on.
NOTE = "run.seconds"
EVERY = 10.0


class Clock:
    """Runs from the moment it is made."""

    def __init__(self) -> None:
        self._start = self._noted = time.monotonic()
        self._earlier = 0.0

    @property
    def seconds(self) -> float:
        """All that was used so far."""
        return self._earlier + time.monotonic() - self._start

    def go_on(self, history: History) -> None:
        """Count what earlier runs have used, too."""
        self._earlier = used(history.notes, history.trials)

    def keep(self, history: History, every: float = 0.0) -> None:
        """Note the seconds in the history, unless that was done in the last `every` ones."""
        now = time.monotonic()
        if now - self._noted >= every and history.header is not None:
            self._noted = now
            with contextlib.suppress(HistoryError):  # what matters is recorded elsewhere, and says so
                history.note(NOTE, self.seconds)


def used(notes: PlainMapping, trials: Iterable[Trial]) -> float:
    """Seconds of all earlier runs: as they were noted, and of the trials at least, if a run was killed."""
    noted = notes.get(NOTE, 0.0)
    seconds = float(noted) if isinstance(noted, int | float) else 0.0
    return max(seconds, sum(trial.seconds + trial.build_seconds for trial in trials))
