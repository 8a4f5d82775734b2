"""Choose how a run is shown: a live display in a terminal, plain lines in a notebook and everywhere else."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import Any

from quaver.api.display.console import ConsoleDisplay
from quaver.engine.event_base import Event, Tone
from quaver.engine.observers import Observer
from quaver.errors import SettingsError
from quaver.formatting import printable

# Held by the run that has the live display. Two on one terminal would draw over each other, so a second run gets lines.
_terminal = threading.Lock()


@contextlib.contextmanager
def display(verbose: int | None) -> Iterator[list[Observer]]:
    """Yield the observers that show a run.

    Args:
        verbose: None chooses by where the run is; 0 shows nothing, 1 plain lines.
    """
    if verbose is not None and (not isinstance(verbose, int) or verbose not in (0, 1)):
        raise SettingsError(f"`verbose` must be None (by where it runs), 0 (quiet) or 1 (lines), not {verbose!r}")
    if verbose == 0:
        yield []
    elif verbose is None and not in_a_notebook() and _is_terminal(sys.stderr) and _terminal.acquire(blocking=False):
        try:
            from quaver.api.display.live import LiveDisplay

            with LiveDisplay() as live:
                yield [live]
        finally:
            _terminal.release()
    else:  # notebooks print stderr in red
        yield [ConsoleDisplay(sys.stdout if in_a_notebook() else sys.stderr)]


def print_warnings(event: Event) -> None:
    """Print only notices and warnings on stderr: the observer of `quaver tune --quiet`."""
    if event.is_notice or event.tone is Tone.WARNING:
        print(f"quaver: {printable(event.line())}", file=sys.stderr, flush=True)


def in_a_notebook() -> bool:
    """Return whether this process is the kernel of a notebook."""
    asked = sys.modules.get("IPython")
    shell: Any = None if asked is None else asked.get_ipython()
    return shell is not None and hasattr(shell, "kernel")


def _is_terminal(stream: Any) -> bool:
    return stream is not None and hasattr(stream, "isatty") and bool(stream.isatty())
