"""Did you mean ...?"""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterable

from quaver.errors import SettingsError

# So many names are compared, and none that is longer: comparing takes the product of both lengths.
_MOST = 2000
_LONGEST = 200


def nearest(name: str, known: Iterable[str], count: int = 3, cutoff: float = 0.5) -> list[str]:
    """Known names that look like `name`, the likeliest first, whatever their case."""
    short = (item for item in itertools.islice(known, _MOST) if len(item) <= _LONGEST)
    by_lower = {item.lower(): item for item in short}
    close = difflib.get_close_matches(name[:_LONGEST].lower(), by_lower, n=count, cutoff=cutoff)
    return [by_lower[item] for item in close]


def check_known(what: str, name: object, known: Iterable[str]) -> None:
    """Refuse a name that is none of the known ones."""
    known = list(known)
    if name not in known:
        raise SettingsError(f"unknown {what} {name!r:.80}; {hint(str(name), known)}")


def hint(name: str, known: Iterable[str]) -> str:
    """A half sentence to end an error message with: the nearest names, or all of them if there are few."""
    known = list(known)
    close = nearest(name, known)
    if close:
        return f"did you mean {' or '.join(map(repr, close))}?"
    listed = ", ".join(map(repr, known[:12]))
    return f"known are: {listed}{', ...' if len(known) > 12 else ''}" if known else "there are none"
