"""The library's warnings, as the command line shows them."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator


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
