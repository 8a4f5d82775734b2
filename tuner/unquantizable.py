"""What no precision but float is there for: kinds of nodes that a model holds besides its ops."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from quaver.types import PlainMapping

# The name of the note in a history.
UNQUANTIZABLE_NOTE = "unquantizable"
# Less of the time than this is not worth a word.
NOTICEABLE = 0.01
# So many kinds are named in a sentence.
NAMED = 5


@dataclass(frozen=True, slots=True)
class Unquantizable:
    """Nodes of one kind that compute and can run in float alone, such as LSTM, If or a custom op.

    Attributes:
        kind: of the nodes, as the framework calls it.
        count: how many there are.
        share: of the time of the fp32 model on one thread; None if it was not measured.
    """

    kind: str
    count: int
    share: float | None = None


def with_shares(found: Iterable[Unquantizable], seconds: Mapping[str, float], whole: float) -> list[Unquantizable]:
    """The same kinds with their shares, those that take most first."""
    timed = [replace(one, share=seconds.get(one.kind, 0.0) / whole if whole > 0 else 0.0) for one in found]
    return sorted(timed, key=lambda one: -(one.share or 0.0))


def to_note(found: Iterable[Unquantizable]) -> list[list[Any]]:
    """As a history keeps it."""
    return [[one.kind, one.count, one.share] for one in found]


def from_notes(notes: PlainMapping) -> tuple[Unquantizable, ...]:
    """From the notes of a history; nothing if it holds none."""
    noted = notes.get(UNQUANTIZABLE_NOTE)
    return tuple(Unquantizable(*entry) for entry in noted if _fits(entry)) if isinstance(noted, list) else ()


def in_words(found: Iterable[Unquantizable]) -> str:
    """A sentence about those that take a noticeable part of the time, or whose part nobody knows; empty without any."""
    told = [one for one in found if one.share is None or one.share >= NOTICEABLE]
    if not told:
        return ""
    shown, more = told[:NAMED], len(told) - NAMED
    names = ", ".join(f"{one.kind} ({one.count})" for one in shown) + (f" and {more} more" if more > 0 else "")
    shares = [one.share for one in told]
    if None in shares:
        return f"{names} cannot be quantized"
    whole = f"{sum(share or 0.0 for share in shares):.0%}".replace("%", " %")
    parts = " + ".join(f"{share:.0%}".removesuffix("%") for share in shares if share is not None)
    each = f" ({parts})" if 1 < len(told) <= NAMED else ""
    return f"{names} cannot be quantized: {whole}{each} of the fp32 time"


def _fits(entry: Any) -> bool:
    """Whether an entry of a note is one that was written as such."""
    if not isinstance(entry, list | tuple) or len(entry) != 3:
        return False
    kind, count, share = entry
    return isinstance(kind, str) and type(count) is int and (share is None or isinstance(share, float))
