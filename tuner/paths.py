"""Paths as a user writes them."""

from __future__ import annotations

import os
from typing import Any


def expanded(place: Any) -> Any:
    """A path with `~` and `~user` replaced, as a shell does it. What is no path is left as it is."""
    return os.path.expanduser(place) if isinstance(place, str | os.PathLike) else place
