"""The base class of trackers: which events they pass on, which figures a trial has, and that a tracker never ends a
run.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import ClassVar

from quaver.api.run_log import LOG
from quaver.api.workspace import SETTINGS
from quaver.engine.event_base import Event
from quaver.engine.events import BaselineScored, RunFinished, RunStarted, TrialFinished
from quaver.errors import MissingPackageError
from quaver.extras import install_command
from quaver.history import FILE_NAME
from quaver.trial import Trial
from quaver.types import PlainMapping

# The files that are stored with the figures, if they exist when the run ends.
REPORT = "report.html"
ARTIFACTS = (FILE_NAME, REPORT, SETTINGS, LOG)


class Tracker:
    """An observer that records a run in an experiment tracker. A subclass writes `start`, `trial` and `finish`.

    The first error is raised, and `fit` turns it into one warning. After that the tracker is silent, so an unreachable
    server costs a run one attempt.

    Attributes:
        extra: the extra of quaver that installs the package; also the tracker's name.
        package: the module that it needs.
    """

    extra: ClassVar[str]
    package: ClassVar[str]

    def __init__(self) -> None:
        try:
            self._package: ModuleType = importlib.import_module(self.package)
        except ImportError as error:
            name, install = type(self).__name__, install_command(self.extra)
            raise MissingPackageError(f"{name} needs {self.package}, which is not installed: {install}") from error
        self._has_started = self._failed = False
        self._folder = Path()

    def __call__(self, event: Event) -> None:
        """Pass on an event that matters to trackers."""
        if self._failed:
            return
        try:
            self._pass_on(event)
        except BaseException:
            self._failed = True
            raise

    def start(self, event: RunStarted) -> None:
        """Record that a run starts."""
        raise NotImplementedError

    def trial(self, trial: Trial) -> None:
        """Record a trial; number 0 is the fp32 model."""
        raise NotImplementedError

    def finish(self, event: RunFinished, artifacts: list[Path]) -> None:
        """Record the end of a run, and store the files that it left."""
        raise NotImplementedError

    def _pass_on(self, event: Event) -> None:
        match event:
            case RunStarted():
                self._has_started, self._folder = True, event.workspace
                self.start(event)
            case BaselineScored(trial) | TrialFinished(trial, _) if self._has_started:
                self.trial(trial)
            case RunFinished() if self._has_started:
                self._has_started = False
                self.finish(event, [path for name in ARTIFACTS if (path := self._folder / name).is_file()])


def figures(trial: Trial) -> dict[str, float]:
    """Return the figures of a trial by name, all as numbers."""
    return dict(_figures(trial))


def _figures(trial: Trial) -> Iterator[tuple[str, float]]:
    if trial.score is not None:
        yield "score", trial.score
    if trial.loss is not None:
        yield "loss", trial.loss
        yield "met", float(trial.met)
    if trial.interval is not None:
        yield "loss_low", trial.interval[0]
        yield "loss_high", trial.interval[1]
    if trial.samples:
        yield "samples", float(trial.seen)
    for name, value in trial.metrics.items():
        yield f"metric.{name}", value
    for precision, count in trial.config.counts.items():
        yield f"{precision}_ops", float(count)
    yield "seconds", trial.seconds
    yield "build_seconds", trial.build_seconds
    if trial.model_size:
        yield "size", float(trial.model_size)
    yield from trial.measured.items()


def flat(settings: PlainMapping) -> dict[str, str]:
    """Return the settings that are set, as short texts."""
    return {name: str(value)[:500] for name, value in settings.items() if value not in (None, {}, "")}
