"""Who shows runs and results. They stand above this room, so they are found by name, as adapters are."""

from __future__ import annotations

import logging
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from quaver.errors import MissingPackageError

log = logging.getLogger(__name__)

GROUP = "quaver.insights"


def shown(name: str) -> Callable[..., Any]:
    """What draws ("plot"), serves a page ("page") or writes a report ("report"). Raises `MissingPackageError`."""
    for entry in entry_points(group=GROUP, name=name):
        try:
            found: Callable[..., Any] = entry.load()
        except ImportError as error:
            raise MissingPackageError(
                f"this needs {error.name or 'a package'}, which is not installed: pip install 'quaver[insights]'"
            ) from error
        return found
    raise MissingPackageError(f"nothing is installed that can {name} a run: install quaver again")


def write_report(workspace: Path) -> None:
    """Write the report of a run into its workspace. One that cannot be written costs nothing but itself."""
    try:
        shown("report")(workspace)
    except Exception:
        log.warning("the report of the run could not be written", exc_info=True)
