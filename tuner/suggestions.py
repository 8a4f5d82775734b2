"""Suggest near names in error messages: "did you mean ...?"."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterable

from quaver.errors import SettingsError

# At most this many names are compared, and none that is longer: comparing takes the product of both lengths.
_MAX_NAMES = 2000
_MAX_LENGTH = 200


def nearest(name: str, names: Iterable[str], count: int = 3, cutoff: float = 0.5) -> list[str]:
    """Return the names that look like `name`, the likeliest first, whatever their case."""
    short = (item for item in itertools.islice(names, _MAX_NAMES) if len(item) <= _MAX_LENGTH)
    by_lower = {item.lower(): item for item in short}
    close = difflib.get_close_matches(name[:_MAX_LENGTH].lower(), by_lower, n=count, cutoff=cutoff)
    return [by_lower[item] for item in close]


def check_known(what: str, name: object, names: Iterable[str]) -> None:
    """Refuse a name that is not one of these."""
    names = list(names)
    if name not in names:
        raise SettingsError(f"unknown {what} {name!r:.80}; {hint(str(name), names)}")


def hint(name: str, names: Iterable[str]) -> str:
    """Return the end of an error message: the nearest names, or the first dozen of all."""
    names = list(names)
    close = nearest(name, names)
    if close:
        return f"did you mean {' or '.join(map(repr, close))}?"
    listed = ", ".join(map(repr, names[:12]))
    return f"known are: {listed}{', ...' if len(names) > 12 else ''}" if names else "there are none"
