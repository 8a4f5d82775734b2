"""The packages that decide which bytes a configuration becomes."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from quaver.adapters import Adapter


def versions_of(adapter: Adapter) -> dict[str, str]:
    """Package name -> version: quaver's own, and what the adapter builds with."""
    try:
        own = version("quaver")
    except PackageNotFoundError:  # run from a folder that was never installed
        own = "0"
    return {"quaver": own, **adapter.versions}
