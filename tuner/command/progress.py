"""What is seen of a run while it goes on."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from quaver.api.settings import Config
from quaver.command import wording
from quaver.engine.events import (
    BaselineScored,
    CalibrationCut,
    Event,
    ModelConverted,
    Planned,
    Progressed,
    SettingChanged,
    Stage,
    StageStarted,
    TrialFinished,
    TrialSlow,
    TrialStarted,
)
from quaver.trial import Trial


def warn_when_slow(event: Event) -> None:
    """The quiet observer: says nothing, unless an evaluation seems to hang or a resumed run goes on differently."""
    match event:
        case TrialSlow(number, seconds, usual):
            what = "the baseline" if number == 0 else f"trial {number}"
            _say(
                f"{what}: eval_func has been running for {wording.seconds(seconds)}; it took "
                f"{wording.seconds(usual)} on the fp32 model. It may hang. Ctrl-C ends the run with the best so far"
            )
        case SettingChanged() | CalibrationCut():
            _say(str(event))


def _say(text: str) -> None:
    print(f"quaver: {text}", file=sys.stderr, flush=True)


class Progress:
    """For a terminal: bars for calibration and probes, a line for each trial, and one for what goes on now.

    Args:
        config: the settings of the run.
        samples: how many samples will be calibrated on, if that is known.
        spent: seconds that earlier, resumed runs have used of the timeout.
    """

    def __init__(self, config: Config, samples: int | None = None, spent: float = 0.0) -> None:
        self._config, self._samples, self._criterion = config, samples, config.criterion
        self._console = Console(stderr=True, markup=False, highlight=False, emoji=False)
        self._bar: tuple[str, int, int | None] | None = None
        self._doing = ""
        self._clock = Clock(config, spent)
        self._best: Trial | None = None
        self._live = Live(
            console=self._console,
            get_renderable=self._render,
            refresh_per_second=4,
            transient=True,
            redirect_stdout=sys.stdout.isatty(),  # what eval_func prints into a file must get there
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._live.stop()

    def __call__(self, event: Event) -> None:
        """Show an event."""
        match event:
            case StageStarted(stage):
                self._bar, self._doing = None, str(stage)
                self._print(str(stage))
            case CalibrationCut():
                self._print(str(event))
            case Planned(evaluations=most):
                self._clock.planned(most)
                self._print(str(event))
            case ModelConverted():
                self._print(str(event))
            case Progressed(stage, done, total):
                self._progressed(stage, done, total)
            case BaselineScored(trial):
                self._bar, self._doing = None, "asking the strategy"
                self._clock.usual(trial)
                self._print(f"fp32      score {wording.score(trial.score)}, {wording.seconds(trial.seconds)}")
            case TrialStarted(number, best):
                self._bar, self._best = None, best
                self._doing = "scoring the fp32 model" if number == 0 else f"trial {number}"
                self._clock.evaluating(number)
                self._live.refresh()
            case TrialFinished(trial, best):
                self._tried(trial, best)
            case _:
                warn_when_slow(event)

    def _progressed(self, stage: Stage, done: int, total: int | None) -> None:
        total = total if total is not None or stage is not Stage.CALIBRATING else self._samples
        first = self._bar is None
        self._bar = None if total is not None and done >= total else (str(stage), done, total)
        if first:
            self._live.refresh()

    def _tried(self, trial: Trial, best: Trial | None) -> None:
        self._best, self._doing = best, "asking the strategy"
        self._clock.tried(trial)
        if trial.failed:
            result = f"failed: {wording.last_line(trial.error)}"
        else:
            result = f"score {wording.score(trial.score)}, loss {wording.loss(trial.loss, self._criterion)}, "
            result += f"{wording.verdict(trial)}, {wording.counts(trial)} ops, {wording.seconds(trial.seconds)}"
        crown = ", best so far" if best is not None and best.number == trial.number else ""
        self._print(f"trial {trial.number:<3} {result}{crown}")

    def _print(self, line: str) -> None:
        self._console.print(Text(wording.name(line)))

    def _render(self) -> RenderableType:
        """Called by the display, several times a second and from its own thread."""
        lines: list[RenderableType] = []
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
            loss = wording.loss(best.loss, self._criterion)
            parts.append(f"| best {wording.score(best.score)} (loss {loss}, {wording.verdict(best)})")
        left = self._clock.left()
        return [*parts, f"| {left}"] if left else parts


class Clock:
    """How long a run may still take."""

    def __init__(self, config: Config, spent: float) -> None:
        self._timeout, self._most = config.timeout, config.max_trials
        self._spent = spent
        self._made, self._planned = time.monotonic(), False
        self._begun: float | None = None
        self._number = 0
        self._taken: list[float] = []
        self._usual = 0.0

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

    def tried(self, trial: Trial) -> None:
        """An evaluation is over."""
        self._taken.append(trial.seconds + trial.build_seconds)
        self._begun = None

    def running(self) -> float | None:
        """Seconds since the current evaluation began."""
        begun = self._begun
        return None if begun is None else time.monotonic() - begun

    def left(self) -> str:
        """In words, what is left of the timeout or, without one, of the trials; empty while nobody knows."""
        if not self._planned or not (self._taken or self._usual):
            return ""
        mean = sum(self._taken) / len(self._taken) if self._taken else self._usual
        running = self.running() or 0.0
        done = self._number - (self._begun is not None)
        by_trials = max(mean * max(self._most - done, 0) - min(running, mean), 0.0)
        if self._timeout > 0:
            by_timeout = max(self._timeout - self._spent - (time.monotonic() - self._made), 0.0)
            if by_timeout <= by_trials:
                return f"{wording.seconds(by_timeout)} left"
        return f"at most about {wording.seconds(by_trials)} left"
