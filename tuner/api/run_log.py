"""The log file of a run: a line an event, with the time."""

from __future__ import annotations

import contextlib
import io
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from quaver.engine.events import (
    BaselineScored,
    Diagnosed,
    Event,
    Planned,
    RunFinished,
    SettingChanged,
    StageStarted,
    TrialFinished,
    TrialSlow,
)

LOG = "quaver.log"


class RunLog:
    """An observer that writes down what happens."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

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
        case Planned() | SettingChanged():
            yield str(event)
        case BaselineScored(trial):
            yield f"fp32 baseline: score {trial.score:.6g} in {trial.seconds:.1f} s"
        case TrialSlow(number, seconds, usual):
            yield f"trial {number}: eval_func has been running for {seconds:.0f} s; the baseline took {usual:.1f} s"
        case TrialFinished(trial, _):
            yield f"{trial}, {trial.seconds:.1f} s evaluating, {trial.build_seconds:.2f} s building"
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
        file = (folder / LOG).open("a", encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        logger.warning("cannot write %s: %s", folder / LOG, error.strerror)
        yield RunLog(io.StringIO())
        return
    handler = _Quiet(file)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%d %H:%M:%S"))
    logger.addHandler(handler)
    try:
        yield RunLog(file)
    finally:
        logger.removeHandler(handler)
        with contextlib.suppress(OSError):  # a full disk shows again when the file is closed
            file.close()
