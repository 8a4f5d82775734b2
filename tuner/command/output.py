"""Guard stdout: a full or closed stdout ends no command, and with --json nothing but the JSON goes there."""

from __future__ import annotations

import contextlib
import errno
import io
import logging
import os
import sys
import warnings
from collections.abc import Iterator
from typing import Any, TextIO


class _StderrHandler(logging.Handler):
    """Log to the current `sys.stderr`."""

    def emit(self, record: logging.LogRecord) -> None:
        print(f"quaver: {record.getMessage()}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def warnings_shown() -> Iterator[None]:
    """Print the library's warnings to stderr within the block."""
    handler, logger = _StderrHandler(logging.WARNING), logging.getLogger("quaver")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


@contextlib.contextmanager
def plain_warnings() -> Iterator[None]:
    """Print each Python warning as one line without its place in the source within the block."""
    format_before = warnings.formatwarning
    with warnings.catch_warnings():
        # A library that records warnings in another thread may put the first one back; then the second one counts.
        warnings.showwarning, warnings.formatwarning = _show, _one_line
        try:
            yield
        finally:
            warnings.formatwarning = format_before


def _one_line(message: Warning | str, *place: object, **options: object) -> str:
    return f"quaver: {' '.join(str(message).split())}\n"


def _show(message: Warning | str, *place: object, **options: object) -> None:
    print(_one_line(message), end="", file=sys.stderr, flush=True)


# The JSON of the running command, while nothing else may go to stdout; None without --json.
_json: list[str] | None = None


class Output(io.TextIOBase):
    """A replacement of stdout that records the first failed write and drops what follows.

    The command continues: an evaluation that prints does not fail, and files are written. The command reports the error
    at its end.

    Attributes:
        error: the first failed write; None if there was none.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self.error: OSError | None = None

    def write(self, text: str) -> int:
        """Write the text unless a write has failed."""
        if self._stream is None:
            self.error = self.error or OSError(errno.EBADF, "it is closed")
        elif self.error is None:
            with self._recording_failure():
                self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush stdout unless a write has failed."""
        if self._stream is not None and self.error is None:
            with self._recording_failure():
                self._stream.flush()

    @contextlib.contextmanager
    def _recording_failure(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.error = error
            self._discard_buffer()

    def _discard_buffer(self) -> None:
        """Send buffered text to the null device, so that the end of the process does not fail, too."""
        with contextlib.suppress(OSError, ValueError, AttributeError):
            assert self._stream is not None
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self._stream.fileno())
            os.close(null)
            self._stream.flush()

    def writable(self) -> bool:
        """Return True."""
        return True

    def isatty(self) -> bool:
        """Return True if stdout is a terminal."""
        return self._stream is not None and self._stream.isatty()

    def fileno(self) -> int:
        """Return the file descriptor of stdout."""
        if self._stream is None:
            raise OSError(errno.EBADF, "it is closed")
        return self._stream.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """Return the encoding of stdout."""
        return "utf-8" if self._stream is None else self._stream.encoding

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def guarded_stdout() -> Iterator[Output]:
    """Replace `sys.stdout` by one that never fails, and occupy closed standard descriptors, within the block."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:  # else the next opened file, such as the history, would receive what is printed
            os.open(os.devnull, os.O_RDWR)
    before = sys.stdout, sys.stderr
    sys.stdout = output = Output(sys.stdout)
    sys.stderr = Output(None) if sys.stderr is None else sys.stderr
    try:
        yield output
    finally:
        output.flush()
        sys.stdout, sys.stderr = before


@contextlib.contextmanager
def json_alone(is_wanted: bool) -> Iterator[None]:
    """Send everything but the command's JSON to stderr within the block.

    This includes eval_func, the modules it imports, and processes that inherit stdout. The JSON is written at the end;
    an error drops it.
    """
    global _json
    if not is_wanted:
        yield
        return
    before, _json = sys.stdout, []
    before.flush()
    descriptor = os.dup(1)
    sys.stdout = Output(sys.stderr)
    os.dup2(2, 1)
    texts: list[str] = []
    try:
        yield
        texts = _json
    finally:
        os.dup2(descriptor, 1)
        os.close(descriptor)
        sys.stdout, _json = before, None
        for text in texts:
            print(text, end="")


def write_json(text: str) -> None:
    """Write the JSON of a command to stdout, at the end of `json_alone` if that is active."""
    text = text if text.endswith("\n") else f"{text}\n"
    if _json is None:
        print(text, end="")
    else:
        _json.append(text)
