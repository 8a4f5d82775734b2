"""The library's warnings, as the command line shows them."""

from __future__ import annotations

import contextlib
import logging
import sys
import warnings
from collections.abc import Iterator
from typing import Any


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
