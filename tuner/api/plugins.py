"""Load what shows runs: figures, the web page and the report, which packages above this one provide."""

from __future__ import annotations

import logging
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from quaver.errors import MissingPackageError
from quaver.extras import install_command

log = logging.getLogger(__name__)

GROUP = "quaver.insights"


def load_view(name: str) -> Callable[..., Any]:
    """Return the function that draws figures ("plot"), serves the page ("page") or writes the report ("report").

    Raises:
        MissingPackageError: a package that it needs is not installed.
    """
    for entry in entry_points(group=GROUP, name=name):
        try:
            view: Callable[..., Any] = entry.load()
        except ImportError as error:
            raise MissingPackageError(
                f"this needs {error.name or 'a package'}, which is not installed: {install_command('insights')}"
            ) from error
        return view
    raise MissingPackageError(f"nothing is installed that can {name} a run: install quaver again")


def write_report(workspace: Path) -> None:
    """Write the report of a run into its workspace. A failure is logged, and the run continues."""
    try:
        load_view("report")(workspace)
    except Exception:
        log.warning("the report of the run could not be written", exc_info=True)
