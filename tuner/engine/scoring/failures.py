"""Record errors in user code, whatever that code does: texts of bounded length, and forked children.

An exception may raise when it is printed, may carry a whole array as text, or may be no `Exception` at all
(`sys.exit`). None of that may end a run.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Iterator

from quaver.errors import QuaverError

# Characters of an error that are recorded: its beginning and its end.
MAX_TEXT = 100_000


def text_of(error: BaseException) -> str:
    """Return the text of an error; a placeholder if that cannot be had."""
    try:
        return shortened(str(error))
    except BaseException:  # what __str__ raises says nothing about the run
        return "<its text cannot be printed: __str__ raises>"


def message_of(error: BaseException) -> str:
    """Return an error in one phrase: the text alone for quaver's own errors, else with its type."""
    if isinstance(error, QuaverError):
        return text_of(error)
    text = text_of(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def traceback_of(error: BaseException) -> str:
    """Return the traceback of an error; its message if the traceback cannot be formatted."""
    try:
        return shortened("".join(traceback.format_exception(error)))
    except BaseException:  # a chain of exceptions may be made of anything
        return message_of(error)


def shortened(text: str) -> str:
    """Return a text whose middle is cut out if it is very long."""
    if len(text) <= MAX_TEXT:
        return text
    half = MAX_TEXT // 2
    return f"{text[:half]}\n[{len(text) - 2 * half:,} characters left out]\n{text[-half:]}"


@contextlib.contextmanager
def without_forks() -> Iterator[None]:
    """End a child process that was forked inside, before it leaves: it must not continue as the run.

    The exit code is that of `sys.exit`, 1 after any other error, else 0.
    """
    process = os.getpid()
    code = 0
    try:
        yield
    except BaseException as error:
        code = _exit_code(error)
        raise
    finally:
        if os.getpid() != process:
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(Exception):
                    stream.flush()
            os._exit(code)


def _exit_code(error: BaseException) -> int:
    if isinstance(error, SystemExit) and (error.code is None or isinstance(error.code, int)):
        return (error.code or 0) & 0xFF
    return 1
