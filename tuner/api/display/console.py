"""What is told of a run where no display can be: a line a stage and a trial, and what took how long."""

from __future__ import annotations

import time
from typing import TextIO

from quaver import formatting
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
    RunFinished,
    RunStarted,
    SamplesOrdered,
    SettingChanged,
    StageStarted,
    StartedFrom,
    TimingsReused,
    TrialFinished,
    TrialSlow,
    TrialStarted,
    Uncalibrated,
)
from quaver.trial import Trial

EVALUATING = "eval_func"
BETWEEN = "the rest"


class ConsoleDisplay:
    """An observer that writes plain lines, each with the seconds since the start."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._criterion = Criterion()
        self._begun: float | None = None
        self._stages = Stages()

    def __call__(self, event: Event) -> None:
        """Write the line of an event, if it has one."""
        if self._begun is None:
            self._begun = event.time
        self._stages(event)
        match event:
            case RunStarted(settings=settings):
                self._criterion = Criterion.from_settings(settings)
            case StageStarted(stage):
                self._line(event, str(stage))
            case Planned() | SettingChanged() | ModelConverted() | CalibrationCut() | PageOpened() | Uncalibrated():
                self._line(event, str(event))
            case SamplesOrdered() | StartedFrom() | Confirmed() | TimingsReused() | MeasurementDied():
                self._line(event, str(event))
            case BaselineScored(trial):
                self._line(event, f"fp32: score {formatting.scores(trial)}, {formatting.duration(trial.seconds)}")
            case TrialFinished(trial, best):
                self._line(event, tried(trial, best, self._criterion))
            case TrialSlow():
                self._line(event, slow(event))
            case RunFinished(reason=reason):
                self._line(event, f"done: {reason}. {self._stages}")

    def _line(self, event: Event, text: str) -> None:
        taken = max(0.0, event.time - (self._begun or event.time))
        print(f"quaver {formatting.duration(taken):>6}  {formatting.printable(text)}", file=self._file, flush=True)


class Stages:
    """An observer that adds up what each stage took."""

    def __init__(self) -> None:
        self._taken: dict[str, float] = {}
        self._now, self._since = BETWEEN, time.time()

    def __call__(self, event: Event) -> None:
        """A stage ends when the next one begins."""
        match event:
            case StageStarted(stage):
                self._turn_to(str(stage), event.time)
            case TrialStarted():
                self._turn_to(EVALUATING, event.time)
            case BaselineScored(trial) | TrialFinished(trial, _):
                self._taken[EVALUATING] = self._taken.get(EVALUATING, 0.0) + trial.seconds
                self._now, self._since = BETWEEN, event.time
            case Planned():
                self._turn_to(BETWEEN, event.time)
            case RunFinished():
                self._turn_to(BETWEEN, event.time)

    def _turn_to(self, stage: str, now: float) -> None:
        if self._now not in (BETWEEN, EVALUATING):
            self._taken[self._now] = self._taken.get(self._now, 0.0) + max(0.0, now - self._since)
        self._now, self._since = stage, now

    def __str__(self) -> str:
        longest = sorted(self._taken.items(), key=lambda item: -item[1])
        return "; ".join(f"{stage}: {formatting.duration(taken)}" for stage, taken in longest)


def tried(trial: Trial, best: Trial | None, criterion: Criterion) -> str:
    """A trial in a line."""
    if trial.failed:
        return f"trial {trial.number}: failed: {formatting.last_line(trial.error)}"
    crown = ", best so far" if best is not None and best.number == trial.number else ""
    about = "about " if trial.estimated else ""
    return (
        f"trial {trial.number}: score {about}{formatting.scores(trial)}, "
        f"{formatting.loss_or_gain(trial.loss, criterion)}, "
        f"{formatting.verdict(trial)}, {formatting.op_counts(trial)} ops, {formatting.duration(trial.seconds)}{crown}"
    )


def slow(event: TrialSlow) -> str:
    """An evaluation that may hang, in a line."""
    what = "the baseline" if event.number == 0 else f"trial {event.number}"
    return (
        f"{what}: eval_func has been running for {formatting.duration(event.seconds)}; it took "
        f"{formatting.duration(event.usual)} on the fp32 model. It may hang. Ctrl-C ends the run with the best so far"
    )
