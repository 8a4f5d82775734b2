"""Who shows a run while it goes on: a live display in a terminal, plain lines in a notebook and everywhere else."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import Any

from quaver import formatting
from quaver.api.display.console import ConsoleDisplay, slow
from quaver.engine.events import CalibrationCut, Event, Observer, SettingChanged, TrialSlow, Uncalibrated
from quaver.errors import SettingsError

# Two displays on one terminal would draw over each other: the second run of a process gets lines.
_terminal = threading.Lock()


@contextlib.contextmanager
def display(verbose: int | None) -> Iterator[list[Observer]]:
    """The observers that show a run: none if it is to be quiet.

    Args:
        verbose: None for what suits the place, 0 for nothing, 1 for lines.
    """
    if verbose is not None and (not isinstance(verbose, int) or verbose not in (0, 1)):
        raise SettingsError(f"`verbose` must be None (by where it runs), 0 (quiet) or 1 (lines), not {verbose!r}")
    if verbose == 0:
        yield []
    elif verbose is None and not in_a_notebook() and _is_terminal(sys.stderr) and _terminal.acquire(blocking=False):
        try:
            from quaver.api.display.live import Progress

            with Progress() as shown:
                yield [shown]
        finally:
            _terminal.release()
    else:  # notebooks print stderr in red
        yield [ConsoleDisplay(sys.stdout if in_a_notebook() else sys.stderr)]


def warn_when_slow(event: Event) -> None:
    """The quiet observer: says nothing, unless an evaluation seems to hang or a resumed run goes on differently."""
    match event:
        case TrialSlow():
            say(slow(event))
        case SettingChanged() | CalibrationCut() | Uncalibrated():
            say(str(event))


def say(text: str) -> None:
    """A line on stderr."""
    print(f"quaver: {formatting.printable(text)}", file=sys.stderr, flush=True)


def in_a_notebook() -> bool:
    """Whether this runs in a kernel that a notebook talks to."""
    asked = sys.modules.get("IPython")
    shell: Any = None if asked is None else asked.get_ipython()
    return shell is not None and hasattr(shell, "kernel")


def _is_terminal(stream: Any) -> bool:
    return stream is not None and hasattr(stream, "isatty") and bool(stream.isatty())
