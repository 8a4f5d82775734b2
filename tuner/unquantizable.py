"""Kinds of nodes that compute and cannot be quantized, such as LSTM, If or a custom op."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from quaver.types import PlainMapping

# The note of a history that holds them.
UNQUANTIZABLE_NOTE = "unquantizable"
# A smaller share of the time is not mentioned. Judgement.
MIN_SHARE = 0.01
# The number of kinds that a sentence names. Judgement.
MAX_NAMED = 5


@dataclass(frozen=True, slots=True)
class Unquantizable:
    """Nodes of one kind that only run in float.

    Attributes:
        kind: the kind, as the framework calls it.
        count: the number of nodes.
        share: their share of the time of the fp32 model on one thread; None if it was not measured.
    """

    kind: str
    count: int
    share: float | None = None


def with_shares(kinds: Iterable[Unquantizable], seconds: Mapping[str, float], whole: float) -> list[Unquantizable]:
    """Return the kinds with their shares of the time, the largest first."""
    timed = [replace(kind, share=seconds.get(kind.kind, 0.0) / whole if whole > 0 else 0.0) for kind in kinds]
    return sorted(timed, key=lambda kind: -(kind.share or 0.0))


def to_note(kinds: Iterable[Unquantizable]) -> list[list[str | int | float | None]]:
    """Return the content of the note."""
    return [[kind.kind, kind.count, kind.share] for kind in kinds]


def from_notes(notes: PlainMapping) -> tuple[Unquantizable, ...]:
    """Return the kinds that the notes of a history hold; entries that cannot be read are skipped."""
    note = notes.get(UNQUANTIZABLE_NOTE)
    return tuple(Unquantizable(*entry) for entry in note if _is_valid(entry)) if isinstance(note, list) else ()


def in_words(kinds: Iterable[Unquantizable]) -> str:
    """Return a sentence about the kinds with a noticeable or unknown share of the time; empty without any."""
    noticeable = [kind for kind in kinds if kind.share is None or kind.share >= MIN_SHARE]
    if not noticeable:
        return ""
    shown, more = noticeable[:MAX_NAMED], len(noticeable) - MAX_NAMED
    names = ", ".join(f"{kind.kind} ({kind.count})" for kind in shown) + (f" and {more} more" if more > 0 else "")
    shares = [kind.share for kind in noticeable]
    if None in shares:
        return f"{names} cannot be quantized"
    whole = f"{sum(share or 0.0 for share in shares):.0%}".replace("%", " %")
    parts = " + ".join(f"{share:.0%}".removesuffix("%") for share in shares if share is not None)
    each = f" ({parts})" if 1 < len(noticeable) <= MAX_NAMED else ""
    return f"{names} cannot be quantized: {whole}{each} of the fp32 time"


def _is_valid(entry: object) -> bool:
    """Return True if an entry of a note has the form that `to_note` writes."""
    if not isinstance(entry, list | tuple) or len(entry) != 3:
        return False
    kind, count, share = entry
    return isinstance(kind, str) and type(count) is int and (share is None or isinstance(share, float))
