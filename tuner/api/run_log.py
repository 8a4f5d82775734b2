"""The log file of a run: one line per event, with the time."""

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

from quaver.engine.event_base import Event

LOG = "quaver.log"
# Only the user may read a new log: a traceback of eval_func may contain private data.
PRIVATE = 0o600
# The run that is active in this thread, and all open runs of the process.
_current: ContextVar[RunLog | None] = ContextVar("quaver_run_log", default=None)
_open: list[RunLog] = []


class RunLog:
    """An observer that writes events to the log file."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    @contextlib.contextmanager
    def here(self) -> Iterator[None]:
        """Have warnings that the library logs in this thread belong to this run, for a while."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)

    def owns(self, record: logging.LogRecord) -> bool:
        """Return whether a log record belongs to this run. One from a helper thread does if no other run is open."""
        current = _current.get()
        return current is self or (current is None and _open == [self])

    def __call__(self, event: Event) -> None:
        """Write the line and the details of an event."""
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(event.time))
        for text in filter(None, (event.line(), event.details())):
            with contextlib.suppress(OSError):  # a log that cannot be written must not end the run
                print(stamp, text, file=self._file, flush=True)


class _LogHandler(logging.StreamHandler[TextIO]):
    """A handler that hides its own failures, so that the error that matters stays visible on the terminal."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the name is logging's
        """Ignore an error while writing."""


@contextlib.contextmanager
def run_log(folder: Path) -> Iterator[RunLog]:
    """Open the log file of a run, which also gets the warnings of the library. A run also works without a log file."""
    logger = logging.getLogger("quaver")
    try:
        handle = os.open(folder / LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT, PRIVATE)
        file = os.fdopen(handle, "a", encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        logger.warning("cannot write %s: %s", folder / LOG, error.strerror)
        yield RunLog(io.StringIO())
        return
    handler = _LogHandler(file)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%d %H:%M:%S"))
    log = RunLog(file)
    handler.addFilter(log.owns)
    logger.addHandler(handler)
    _open.append(log)
    try:
        yield log
    finally:
        _open.remove(log)
        logger.removeHandler(handler)
        with contextlib.suppress(OSError):  # a full disk is reported again when the file is closed
            file.close()
