"""Show a run as plain lines, where no live display is possible."""

from __future__ import annotations

from typing import TextIO

from quaver.api.display.time_left import TimeLeft
from quaver.engine.event_base import Event
from quaver.engine.events import BaselineScored
from quaver.formatting import duration, printable


class ConsoleDisplay:
    """An observer that prints the line of each event, with the seconds since the start; equal lines in a row only once.

    After the baseline it tells the expected end of the run.
    """

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._start: float | None = None
        self._clock = TimeLeft()
        self._last = ""

    def __call__(self, event: Event) -> None:
        """Print an event, if it has a line."""
        if self._start is None:
            self._start = event.time
        self._clock(event)
        lines = [event.line()]
        if isinstance(event, BaselineScored) and self._clock.may_take_long:
            lines.append(self._clock.left())
        for line in filter(None, lines):
            if line == self._last:
                continue
            self._last = line
            elapsed = duration(max(0.0, event.time - self._start))
            print(f"quaver {elapsed:>6}  {printable(line)}", file=self._file, flush=True)
