"""Show a run live in a terminal."""

from __future__ import annotations

import io
import re
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self, TextIO, cast

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from quaver.api.display.time_left import TimeLeft
from quaver.criterion import Criterion
from quaver.engine.event_base import Event, Stage, Tone
from quaver.engine.events import (
    BaselineScored,
    Progressed,
    RunStarted,
    StageStarted,
    TrialFinished,
    TrialStarted,
)
from quaver.formatting import duration, loss_or_gain, printable, score, verdict
from quaver.trial import Trial

# The colour of each tone.
STYLES = {Tone.PLAIN: "", Tone.GOOD: "green", Tone.BAD: "red", Tone.WARNING: "yellow", Tone.QUIET: "dim"}


# Lines that may still change, because nested tqdm bars move up to them. Judgement: nobody nests more bars than this.
MAX_PENDING = 4
_PARTS = re.compile(r"\r|\n|\x1b\[(\d*)A|\x1b\[[0-9;?]*[A-Za-z]|[^\r\n\x1b]+|\x1b")


class Screen:
    """The last printed lines, with carriage returns and moves up applied as a terminal would.

    Args:
        settle: called with each line that cannot change any more.
    """

    def __init__(self, settle: Callable[[str], None]) -> None:
        self._settle = settle
        self._lines = [""]
        self._row = 0
        self._fresh = True  # the next text replaces the line
        self._lock = threading.RLock()

    @property
    def pending(self) -> list[str]:
        """Return the lines that may still change."""
        with self._lock:
            return [line for line in self._lines if line.strip()]

    def take(self, text: str) -> None:
        """Print text: of a progress bar, or lines."""
        settled = []
        with self._lock:
            for part in _PARTS.finditer(text):
                self._take(part)
                if self._row > MAX_PENDING:
                    settled.append(self._lines.pop(0))
                    self._row -= 1
        for line in settled:
            self._settle(line)

    def end(self) -> None:
        """Settle all lines."""
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
    """Stands in for stdout or stderr: prints on a screen, and leaves everything else to the real stream."""

    def __init__(self, stream: TextIO, screen: Screen) -> None:
        self._stream, self._screen = stream, screen
        self._open = True

    def write(self, text: str) -> int:
        """Print on the screen; on the real stream once the display is gone, for those who still hold this object."""
        if not self._open:
            return self._stream.write(text)
        self._screen.take(text)
        return len(text)

    def detach_display(self) -> None:
        """Print on the real stream from now on."""
        self._open = False

    def flush(self) -> None:
        """Flush the real stream; the screen needs none."""
        if not self._open:
            self._stream.flush()

    def isatty(self) -> bool:
        """Return what the real stream returns."""
        return self._stream.isatty()

    def fileno(self) -> int:
        """Return the descriptor of the real stream, which progress bars ask for the width of the terminal."""
        return self._stream.fileno()

    def writable(self) -> bool:
        """Return True."""
        return True

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """Return the encoding of the real stream."""
        return self._stream.encoding


class LiveDisplay:
    """An observer for terminals: bars for calibration and probes, one line per event, and a status line.

    What eval_func prints appears above; its own tqdm bars appear beside ours.
    """

    def __init__(self) -> None:
        self._criterion = Criterion()
        self._console = Console(file=sys.stderr, markup=False, highlight=False, emoji=False)
        self._relays: list[Relay] = []
        self._screen = Screen(lambda line: self._console.print(Text.from_ansi(line)))
        self._bar: tuple[str, int, int | None] | None = None
        self._doing = self._last = ""
        self._under_way: list[int] = []
        self._clock = TimeLeft()
        self._best: Trial | None = None
        self._live = Live(
            console=self._console,
            get_renderable=self._render,
            refresh_per_second=4,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def __enter__(self) -> Self:
        self._live.start()
        self._before = sys.stdout, sys.stderr
        sys.stderr = self._relay(sys.stderr)
        if sys.stdout is not None and sys.stdout.isatty():  # a redirected stdout must reach its file
            sys.stdout = self._relay(sys.stdout)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if sys.stderr in self._relays:
            sys.stderr = self._before[1]
        if sys.stdout in self._relays:
            sys.stdout = self._before[0]
        self._screen.end()
        for relay in self._relays:
            relay.detach_display()
        self._live.stop()

    def _relay(self, stream: TextIO) -> TextIO:
        relay = Relay(stream, self._screen)
        self._relays.append(relay)
        return cast(TextIO, relay)

    def __call__(self, event: Event) -> None:
        """Show an event."""
        self._follow(event)
        line = event.line()
        if line and line != self._last:
            self._last = line
            self._console.print(Text(printable(line), style=STYLES[event.tone]))
        if isinstance(event, TrialStarted):
            self._live.refresh()

    def _follow(self, event: Event) -> None:
        """Update the bar and the status line."""
        self._clock(event)
        match event:
            case RunStarted(settings=settings):
                self._criterion = Criterion.from_settings(settings)
            case StageStarted(stage):
                self._bar, self._doing = None, str(stage)
            case Progressed(stage, done, total):
                self._progressed(stage, done, total)
            case BaselineScored():
                self._bar, self._doing, self._under_way = None, "asking the strategy", []
                self._screen.end()
            case TrialStarted(number, best):
                self._bar, self._best = None, best
                self._under_way.append(number)
                self._doing = self._evaluating()
            case TrialFinished(trial=trial, best=best):
                self._best = best
                self._under_way = [number for number in self._under_way if number != trial.number]
                self._doing = self._evaluating() or "asking the strategy"
                self._screen.end()

    def _evaluating(self) -> str:
        """Return which trials are being evaluated, in words."""
        if self._under_way == [0]:
            return "scoring the fp32 model"
        numbers = ", ".join(map(str, self._under_way))
        return f"trial{'s' if len(self._under_way) > 1 else ''} {numbers}" if numbers else ""

    def _progressed(self, stage: Stage, done: int, total: int | None) -> None:
        first = self._bar is None
        self._bar = None if total is not None and done >= total else (str(stage), done, total)
        if first:
            self._live.refresh()

    def _render(self) -> RenderableType:
        """Draw the screen; the display calls this several times a second from its own thread."""
        lines: list[RenderableType] = [Text(line, overflow="crop", no_wrap=True) for line in self._screen.pending]
        bar = self._bar
        if bar is not None:
            stage, done, total = bar
            row = Table.grid(padding=(0, 1))
            pulse = time.monotonic() if total is None else None
            row.add_row(
                Text(stage),
                ProgressBar(total=total, completed=done, width=30, pulse=total is None, animation_time=pulse),
                Text(str(done) if total is None else f"{done}/{total}"),
            )
            lines.append(row)
        lines.append(Text("  ".join(self._status()), style="bold", overflow="ellipsis", no_wrap=True))
        return Group(*lines)

    def _status(self) -> list[str]:
        parts = [printable(self._doing)]
        running = self._clock.running()
        if running is not None:
            parts.append(f"for {duration(running)}")
        best = self._best
        if best is not None:
            loss = loss_or_gain(best.loss, self._criterion)
            parts.append(f"| best {score(best.score)} ({loss}, {verdict(best)})")
        left = self._clock.left()
        return [*parts, f"| {left}"] if left else parts
