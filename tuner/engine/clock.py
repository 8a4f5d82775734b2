"""What a run has used of its timeout: all the time since it was begun, and that of the runs it goes on with."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping
from typing import Any

from quaver.errors import HistoryError
from quaver.history import Storage
from quaver.trial import Trial

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

    def go_on(self, history: Storage) -> None:
        """Count what earlier runs have used, too."""
        self._earlier = used(history.notes, history.trials)

    def keep(self, history: Storage, every: float = 0.0) -> None:
        """Note the seconds in the history, unless that was done in the last `every` ones."""
        now = time.monotonic()
        if now - self._noted >= every and history.header is not None:
            self._noted = now
            with contextlib.suppress(HistoryError):  # what matters is recorded elsewhere, and says so
                history.note(NOTE, self.seconds)


def used(notes: Mapping[str, Any], trials: Iterable[Trial]) -> float:
    """Seconds of all earlier runs: as they were noted, and of the trials at least, if a run was killed."""
    noted = notes.get(NOTE, 0.0)
    seconds = float(noted) if isinstance(noted, int | float) else 0.0
    return max(seconds, sum(trial.seconds + trial.build_seconds for trial in trials))
