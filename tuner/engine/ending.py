"""How a run ended and where its time went, noted in its history."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

from quaver.budget import StopReason
from quaver.engine.events import Event, RunFinished, StageStarted, TrialFinished, TrialStarted
from quaver.history import Storage

NOTE = "run.ended"


class StageTimes:
    """An observer that adds up what each stage takes. A trial ends a stage; its time is its own."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._stage, self._since = "", 0.0

    def __call__(self, event: Event) -> None:
        """Take an event."""
        match event:
            case StageStarted(stage=stage):
                self._end(event.time)
                self._stage, self._since = str(stage), event.time
            case TrialStarted() | TrialFinished() | RunFinished():
                self._end(event.time)

    def until_now(self) -> dict[str, float]:
        """Seconds of each stage, the one that goes on included."""
        self._end(time.time())
        return dict(self.seconds)

    def _end(self, now: float) -> None:
        if self._stage:
            self.seconds[self._stage] = self.seconds.get(self._stage, 0.0) + max(now - self._since, 0.0)
        self._stage = ""


def note_ending(history: Storage, reason: StopReason, stages: dict[str, float], seconds: float, model: str) -> None:
    """Note why the latest run is over. A run without such a note goes on, or was killed."""
    noted: dict[str, Any] = {
        "run": history.run.number,
        "reason": str(reason),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": seconds,
        "stages": stages,
        "model": model,
    }
    history.note(NOTE, noted)
