"""The log file of a run: a line an event, with the time."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import time
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import TextIO

from quaver.engine.events import (
    BaselineScored,
    CalibrationCut,
    Confirmed,
    Diagnosed,
    Event,
    MeasurementDied,
    ModelConverted,
    PageOpened,
    Planned,
    RunFinished,
    SamplesOrdered,
    SettingChanged,
    StageStarted,
    StartedFrom,
    TimingsReused,
    TrialFinished,
    TrialSlow,
    Uncalibrated,
)
from quaver.trial import Trial

LOG = "quaver.log"
# A new one is for the user alone: tracebacks of eval_func may hold what others should not see.
PRIVATE = 0o600
# The run whose work is done just now, and all that are open.
_current: ContextVar[RunLog | None] = ContextVar("quaver_run_log", default=None)
_open: list[RunLog] = []


class RunLog:
    """An observer that writes down what happens."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    @contextlib.contextmanager
    def here(self) -> Iterator[None]:
        """While this lasts, warnings of the library belong to this run, in this thread."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)

    def owns(self, record: logging.LogRecord) -> bool:
        """Whether a record is of this run; one of no run (a helper thread) is, if there is no other run."""
        current = _current.get()
        return current is self or (current is None and _open == [self])

    def __call__(self, event: Event) -> None:
        """Write the lines of an event, if it has any."""
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(event.time))
        for text in _lines(event):
            with contextlib.suppress(OSError):  # a log must not end a run
                print(stamp, text, file=self._file, flush=True)


def _lines(event: Event) -> Iterator[str]:
    match event:
        case StageStarted(stage):
            yield str(stage)
        case Planned() | SettingChanged() | ModelConverted() | CalibrationCut() | PageOpened() | Uncalibrated():
            yield str(event)
        case SamplesOrdered() | StartedFrom() | Confirmed() | TimingsReused() | MeasurementDied():
            yield str(event)
        case BaselineScored(trial):
            yield f"fp32 baseline: score {trial.score:.6g} in {trial.seconds:.1f} s"
        case TrialSlow(number, seconds, usual):
            yield f"trial {number}: eval_func has been running for {seconds:.0f} s; the baseline took {usual:.1f} s"
        case TrialFinished(trial, _):
            yield f"{trial}, {trial.seconds:.1f} s evaluating, {trial.build_seconds:.2f} s building{_by(trial)}"
            if trial.error:
                yield trial.error.rstrip()
        case Diagnosed(diagnosis):
            yield str(diagnosis)
        case RunFinished():
            yield event.summary


class _Quiet(logging.StreamHandler[TextIO]):
    """A log that cannot be written must not fill the terminal, where the error that matters will stand."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the name is logging's
        """Say nothing."""


@contextlib.contextmanager
def run_log(folder: Path) -> Iterator[RunLog]:
    """The log file of a run. Warnings of the library go there too. Without one, the run goes on."""
    logger = logging.getLogger("quaver")
    try:
        handle = os.open(folder / LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT, PRIVATE)
        file = os.fdopen(handle, "a", encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        logger.warning("cannot write %s: %s", folder / LOG, error.strerror)
        yield RunLog(io.StringIO())
        return
    handler = _Quiet(file)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%d %H:%M:%S"))
    found = RunLog(file)
    handler.addFilter(found.owns)
    logger.addHandler(handler)
    _open.append(found)
    try:
        yield found
    finally:
        _open.remove(found)
        logger.removeHandler(handler)
        with contextlib.suppress(OSError):  # a full disk shows again when the file is closed
            file.close()


def _by(trial: Trial) -> str:
    return f", by {trial.worker}" if trial.worker else ""
