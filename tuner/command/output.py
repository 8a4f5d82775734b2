"""What a command writes to stdout: a full, closed or abandoned stdout ends no command, and JSON stands there alone."""

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


class _ToStderr(logging.Handler):
    """Writes on whatever stderr is at the time."""

    def emit(self, record: logging.LogRecord) -> None:
        print(f"quaver: {record.getMessage()}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def warnings_shown() -> Iterator[None]:
    """Show the library's warnings for a while."""
    handler, logger = _ToStderr(logging.WARNING), logging.getLogger("quaver")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


@contextlib.contextmanager
def plain_warnings() -> Iterator[None]:
    """Show each Python warning as one line for a while, without the place in the source that it comes from."""
    with warnings.catch_warnings():
        warnings.showwarning = _show
        yield


def _show(message: Warning | str, *place: Any, **more: Any) -> None:
    print(f"quaver: {' '.join(str(message).split())}", file=sys.stderr, flush=True)


# The JSON of the command that runs now, while nothing else may go to stdout; None if it has not asked for that.
_json: list[str] | None = None


class Output(io.TextIOBase):
    """Stands in for stdout. A write that fails is remembered, and what follows is dropped.

    So the command goes on: an evaluation that prints does not fail, and files are written. Its end tells what happened.

    Attributes:
        error: why stdout cannot be written; None as long as it can.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self.error: OSError | None = None

    def write(self, text: str) -> int:
        """Write, if stdout takes anything."""
        if self._stream is None:
            self.error = self.error or OSError(errno.EBADF, "it is closed")
        elif self.error is None:
            with self._remembering():
                self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Have on its way what was written."""
        if self._stream is not None and self.error is None:
            with self._remembering():
                self._stream.flush()

    @contextlib.contextmanager
    def _remembering(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.error = error
            self._drop_the_rest()

    def _drop_the_rest(self) -> None:
        """Give what is still buffered a place to go, so that the end of the process does not fail, too."""
        with contextlib.suppress(OSError, ValueError, AttributeError):
            assert self._stream is not None
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)
            self._stream.flush()

    def writable(self) -> bool:
        """Return True: it takes text, whatever becomes of it."""
        return True

    def isatty(self) -> bool:
        """Tell whether stdout is a terminal."""
        return self._stream is not None and self._stream.isatty()

    def fileno(self) -> int:
        """Return the descriptor of stdout."""
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
    """Have `sys.stdout` never fail for a while. What a closed descriptor was for gets no other file."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:  # else the next file that is opened, such as the history, would get what is printed
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
def json_alone(wanted: bool) -> Iterator[None]:
    """Have all that others print go to stderr for a while, so that stdout holds nothing but the command's JSON.

    Others are eval_func, the modules it imports, and processes that inherit stdout. The JSON is written at the end; an
    error drops it.
    """
    global _json
    if not wanted:
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
    """Write the JSON of a command to stdout, once all that may still print has ended."""
    text = text if text.endswith("\n") else f"{text}\n"
    if _json is None:
        print(text, end="")
    else:
        _json.append(text)
