"""Paths as a user writes them."""

from __future__ import annotations

import os
import re
from typing import Any

# A name in a path has no more bytes than this on any usual system.
_MOST_BYTES = 255


def unwritable(place: str) -> str | None:
    """Why a path cannot be a file's or cannot be written down, in words; None if it can."""
    if "\0" in place:
        return "holds a NUL"
    try:
        parts = [part.encode() for part in re.split(r"[/\\]" if os.name == "nt" else "/", place)]
    except UnicodeEncodeError:
        return "is no UTF-8 text"
    longest = max(map(len, parts))
    return f"has a name of {longest} bytes, and {_MOST_BYTES} are the most" if longest > _MOST_BYTES else None


def expanded(place: Any) -> Any:
    """A path with `~` and `~user` replaced, as a shell does it. What is no path is left as it is."""
    return os.path.expanduser(place) if isinstance(place, str | os.PathLike) else place
