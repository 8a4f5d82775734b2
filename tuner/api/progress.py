"""What a terminal shows of a run while it goes on."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self, TextIO, cast

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from quaver.api import wording
from quaver.api.lines import Stages, slow, tried
from quaver.api.relay import Relay, Screen
from quaver.api.time_left import TimeLeft
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
                self._print(f"fp32: score {wording.scores(trial)}, {wording.seconds(trial.seconds)}")
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
        self._console.print(Text(wording.name(line), style=style))

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
        parts = [wording.name(self._doing)]
        running = self._clock.running()
        if running is not None:
            parts.append(f"for {wording.seconds(running)}")
        best = self._best
        if best is not None:
            loss = wording.loss_or_gain(best.loss, self._criterion)
            parts.append(f"| best {wording.score(best.score)} ({loss}, {wording.verdict(best)})")
        left = self._clock.left()
        return [*parts, f"| {left}"] if left else parts
