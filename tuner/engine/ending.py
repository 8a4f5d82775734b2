"""How a run ended, where its time went and what a user must not overlook, noted in its history."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from quaver.budget import StopReason
from quaver.engine.events import Event, RunFinished, StageStarted, TrialFinished, TrialStarted
from quaver.history import Storage

NOTE = "run.ended"
# The note of warnings, by topic: what any part of a run has to say to whoever reads the result.
WARNINGS = "warnings"


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


def note_warning(history: Storage, topic: str, text: str) -> None:
    """Record what a user must not overlook: results, pages and reports show it (see `quaver.api.result_warnings`).

    Args:
        history: the history of the run.
        topic: a short key; a later warning of the same topic replaces the earlier one, an empty text withdraws it.
        text: a sentence or two, with the figure and the advice.
    """
    if noted_warnings(history.notes).get(topic, "") != text:
        history.extend_note(WARNINGS, {topic: text})


def noted_warnings(notes: Mapping[str, Any]) -> dict[str, str]:
    """Return the recorded warnings by topic, as far as they can be read."""
    noted = notes.get(WARNINGS)
    entries = noted.items() if isinstance(noted, dict) else ()
    return {topic: text for topic, text in entries if isinstance(topic, str) and isinstance(text, str) and text}
