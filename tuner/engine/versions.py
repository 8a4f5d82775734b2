"""The packages that decide which bytes a configuration becomes."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from quaver.adapters import Adapter


def was_optimised(settings: Mapping[str, Any]) -> bool:
    """Whether a run rewrote the float graph; before there was a choice, none did."""
    return settings.get("optimise_float") is True


def was_portable(settings: Mapping[str, Any]) -> bool:
    """Return whether a run bounded int8 weights for processors without VNNI; before there was a choice, none did."""
    return settings.get("portable") is True


def versions_of(adapter: Adapter) -> dict[str, str]:
    """Package name -> version: quaver's own, and what the adapter builds with."""
    try:
        own = version("quaver")
    except PackageNotFoundError:  # run from a folder that was never installed
        own = "0"
    return {"quaver": own, **adapter.versions}
