"""What a terminal shows of a run while it goes on."""

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

from quaver import formatting
from quaver.api.display.console import Stages, slow, tried
from quaver.criterion import Criterion
from quaver.engine.events import (
    BaselineScored,
    CalibrationCut,
    Confirmed,
    Event,
    MeasurementDied,
    ModelConverted,
    PageOpened,
    Planned,
    Progressed,
    RunFinished,
    RunStarted,
    SamplesOrdered,
    SettingChanged,
    Stage,
    StageStarted,
    StartedFrom,
    TimingsReused,
    TrialFinished,
    TrialSlow,
    TrialStarted,
    Uncalibrated,
)
from quaver.trial import Trial


class TimeLeft:
    """Told what happens, it says what is left.

    Args:
        timeout: seconds that the run may take; 0 is no timeout.
        most: trials that it may make.
        spent: seconds of the timeout that earlier, resumed runs have used.
    """

    def __init__(self, timeout: float, most: int, spent: float) -> None:
        self._timeout, self._most, self._spent = timeout, most, spent
        self._made, self._planned = time.monotonic(), False
        self._begun: float | None = None
        self._number = 0
        self._taken: list[float] = []
        self._usual = 0.0
        self._beside = 1

    def planned(self, evaluations: int) -> None:
        """The tuning begins, with at most so many evaluations."""
        self._planned = True
        self._most = min(self._most, evaluations)

    def usual(self, trial: Trial) -> None:
        """The baseline's seconds, for want of better."""
        self._usual, self._begun = trial.seconds + trial.build_seconds, None

    def evaluating(self, number: int) -> None:
        """An evaluation begins."""
        self._number, self._begun = number, time.monotonic()

    def tried(self, trial: Trial, others: int = 0) -> None:
        """An evaluation is over; so many others are still under way."""
        self._taken.append(trial.seconds + trial.build_seconds)
        self._beside = max(self._beside, others + 1)
        if not others:
            self._begun = None

    def running(self) -> float | None:
        """Seconds since the current evaluation began."""
        begun = self._begun
        return None if begun is None else time.monotonic() - begun

    def left(self) -> str:
        """In words, what is left of the timeout or, without one, of the trials; empty while nobody knows."""
        if not self._planned or not (self._taken or self._usual):
            return ""
        mean = (sum(self._taken) / len(self._taken) if self._taken else self._usual) / self._beside
        running = self.running() or 0.0
        done = self._number - (self._begun is not None)
        by_trials = max(mean * max(self._most - done, 0) - min(running, mean), 0.0)
        if self._timeout > 0:
            by_timeout = max(self._timeout - self._spent - (time.monotonic() - self._made), 0.0)
            if by_timeout <= by_trials:
                return f"{formatting.duration(by_timeout)} left"
        return f"at most about {formatting.duration(by_trials)} left"


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


class Progress:
    """For a terminal: bars for calibration and probes, a line for each trial, and one for what goes on now.

    What eval_func prints is shown above, and bars of its own (tqdm's) beside ours.
    """

    def __init__(self) -> None:
        self._criterion = Criterion()
        self._console = Console(file=sys.stderr, markup=False, highlight=False, emoji=False)
        self._relays: list[Relay] = []
        self._screen = Screen(lambda line: self._console.print(Text.from_ansi(line)))
        self._stages = Stages()
        self._bar: tuple[str, int, int | None] | None = None
        self._doing = ""
        self._under_way: list[int] = []
        self._clock = TimeLeft(0.0, 1, 0.0)
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
        if sys.stdout is not None and sys.stdout.isatty():  # what eval_func prints into a file must get there
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
            relay.hand_back()
        self._live.stop()

    def _relay(self, stream: TextIO) -> TextIO:
        relay = Relay(stream, self._screen)
        self._relays.append(relay)
        return cast(TextIO, relay)

    def __call__(self, event: Event) -> None:
        """Show an event."""
        self._stages(event)
        match event:
            case RunStarted(settings=settings, spent=spent):
                self._criterion = Criterion.from_settings(settings)
                self._clock = TimeLeft(settings["timeout"], settings["max_trials"], spent)
            case StageStarted(stage):
                self._bar, self._doing = None, str(stage)
                self._print(str(stage))
            case CalibrationCut() | SettingChanged() | ModelConverted() | PageOpened() | StartedFrom() | Uncalibrated():
                self._print(str(event))
            case TimingsReused():
                self._print(str(event))
            case SamplesOrdered() | MeasurementDied():
                self._print(str(event), "yellow")
            case Confirmed(met=met):
                self._print(str(event), "green" if met else "red")
            case Planned(evaluations=most):
                self._clock.planned(most)
                self._print(str(event))
            case Progressed(stage, done, total):
                self._progressed(stage, done, total)
            case BaselineScored(trial):
                self._bar, self._doing, self._under_way = None, "asking the strategy", []
                self._clock.usual(trial)
                self._screen.end()
                self._print(f"fp32: score {formatting.scores(trial)}, {formatting.duration(trial.seconds)}")
            case TrialStarted(number, best):
                self._bar, self._best = None, best
                self._under_way.append(number)
                self._doing = self._evaluating()
                self._clock.evaluating(number)
                self._live.refresh()
            case TrialFinished(trial, best):
                self._tried(trial, best)
            case TrialSlow():
                self._print(slow(event), "yellow")
            case RunFinished():
                self._print(str(self._stages), "dim")

    def _evaluating(self) -> str:
        """All trials that are under way, in words."""
        if self._under_way == [0]:
            return "scoring the fp32 model"
        numbers = ", ".join(map(str, self._under_way))
        return f"trial{'s' if len(self._under_way) > 1 else ''} {numbers}" if numbers else ""

    def _progressed(self, stage: Stage, done: int, total: int | None) -> None:
        first = self._bar is None
        self._bar = None if total is not None and done >= total else (str(stage), done, total)
        if first:
            self._live.refresh()

    def _tried(self, trial: Trial, best: Trial | None) -> None:
        self._best = best
        self._under_way = [number for number in self._under_way if number != trial.number]
        self._doing = self._evaluating() or "asking the strategy"
        self._clock.tried(trial, len(self._under_way))
        self._screen.end()
        self._print(tried(trial, best, self._criterion), "green" if trial.met else "red")

    def _print(self, line: str, style: str = "") -> None:
        self._console.print(Text(formatting.printable(line), style=style))

    def _render(self) -> RenderableType:
        """Called by the display, several times a second and from its own thread."""
        lines: list[RenderableType] = [Text(line, overflow="crop", no_wrap=True) for line in self._screen.pending]
        bar = self._bar
        if bar is not None:
            what, done, total = bar
            row = Table.grid(padding=(0, 1))
            pulse = time.monotonic() if total is None else None
            row.add_row(
                Text(what),
                ProgressBar(total=total, completed=done, width=30, pulse=total is None, animation_time=pulse),
                Text(str(done) if total is None else f"{done}/{total}"),
            )
            lines.append(row)
        lines.append(Text("  ".join(self._status()), style="bold", overflow="ellipsis", no_wrap=True))
        return Group(*lines)

    def _status(self) -> list[str]:
        parts = [formatting.printable(self._doing)]
        running = self._clock.running()
        if running is not None:
            parts.append(f"for {formatting.duration(running)}")
        best = self._best
        if best is not None:
            loss = formatting.loss_or_gain(best.loss, self._criterion)
            parts.append(f"| best {formatting.score(best.score)} ({loss}, {formatting.verdict(best)})")
        left = self._clock.left()
        return [*parts, f"| {left}"] if left else parts
