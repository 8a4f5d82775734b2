"""Read the templates, styles and scripts that are installed in `insights/templates`."""

from __future__ import annotations

from importlib import resources


def read_asset(name: str) -> str:
    """Return the text of a file in `insights/templates`."""
    return resources.files("quaver.insights").joinpath("templates", name).read_text(encoding="utf-8")
