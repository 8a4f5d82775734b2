"""What eval_func prints while a live display is on the terminal: bars that redraw themselves stay one line."""

from __future__ import annotations

import io
import re
import threading
from collections.abc import Callable
from typing import TextIO

# So many lines are kept back, because a bar may go up to them again (nested bars of tqdm do); older ones are settled.
KEPT = 4
_PARTS = re.compile(r"\r|\n|\x1b\[(\d*)A|\x1b\[[0-9;?]*[A-Za-z]|[^\r\n\x1b]+|\x1b")


class Screen:
    """The last lines that were printed. It follows carriage returns and moves up, as a terminal would.

    Args:
        settle: called with each line that will not change any more.
    """

    def __init__(self, settle: Callable[[str], None]) -> None:
        self._settle = settle
        self._lines = [""]
        self._row = 0
        self._fresh = True  # the next text replaces the line
        self._lock = threading.RLock()

    @property
    def pending(self) -> list[str]:
        """The lines that may still change."""
        with self._lock:
            return [line for line in self._lines if line.strip()]

    def take(self, text: str) -> None:
        """Text is printed, a bar's or a line's."""
        settled = []
        with self._lock:
            for part in _PARTS.finditer(text):
                self._take(part)
                if self._row > KEPT:
                    settled.append(self._lines.pop(0))
                    self._row -= 1
        for line in settled:
            self._settle(line)

    def end(self) -> None:
        """Settle what is left: nothing of it changes any more."""
        with self._lock:
            lines, self._lines, self._row, self._fresh = self.pending, [""], 0, True
        for line in lines:
            self._settle(line)

    def _take(self, part: re.Match[str]) -> None:
        text = part.group()
        if text == "\n":
            self._row, self._fresh = self._row + 1, True
            if self._row == len(self._lines):
                self._lines.append("")
        elif text == "\r":
            self._fresh = True
        elif text.startswith("\x1b"):
            if text.endswith("A"):
                self._row = max(0, self._row - int(part.group(1)[:3] or 1))
        else:
            self._lines[self._row] = text if self._fresh else self._lines[self._row] + text
            self._fresh = False


class Relay(io.TextIOBase):
    """Stands in for stdout or stderr and prints on a screen; the real stream is asked for all but that."""

    def __init__(self, beneath: TextIO, screen: Screen) -> None:
        self._beneath, self._screen = beneath, screen
        self._open = True

    def write(self, text: str) -> int:
        """Print on the screen, or on the real stream once the display is gone: some still hold this one then."""
        if not self._open:
            return self._beneath.write(text)
        self._screen.take(text)
        return len(text)

    def hand_back(self) -> None:
        """The display is gone."""
        self._open = False

    def flush(self) -> None:
        """Nothing is kept back that could be shown."""
        if not self._open:
            self._beneath.flush()

    def isatty(self) -> bool:
        """As the real stream says."""
        return self._beneath.isatty()

    def fileno(self) -> int:
        """Of the real stream; bars ask it how wide the terminal is."""
        return self._beneath.fileno()

    def writable(self) -> bool:
        """It is."""
        return True

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """Of the real stream."""
        return self._beneath.encoding
