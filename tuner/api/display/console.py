"""Show a run as plain lines, where no live display is possible."""

from __future__ import annotations

from typing import TextIO

from quaver.engine.event_base import Event
from quaver.formatting import duration, printable


class ConsoleDisplay:
    """An observer that prints the line of each event, with the seconds since the start."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._start: float | None = None

    def __call__(self, event: Event) -> None:
        """Print an event, if it has a line."""
        if self._start is None:
            self._start = event.time
        line = event.line()
        if line:
            elapsed = duration(max(0.0, event.time - self._start))
            print(f"quaver {elapsed:>6}  {printable(line)}", file=self._file, flush=True)
