"""Names and figures as the views write them. Names come from model files, so nothing in them may be obeyed."""

from __future__ import annotations

import math

from quaver.criterion import Criterion
from quaver.formatting import MAX_SECONDS
from quaver.limit import loss_text
from quaver.ops import OpConfig

# Characters of a name that are shown; the middle of a longer one is left out.
SHOWN = 64
UNKNOWN = "–"  # noqa: RUF001 - as tables write what is not known


def name(text: str, most: int = SHOWN) -> str:
    """A name on one line and of bounded length, what cannot be printed escaped."""
    if len(text) > most:
        head = (most - 1) // 3
        text = f"{text[:head]}…{text[len(text) - (most - 1 - head) :]}"
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def figure_text(text: str, most: int = SHOWN) -> str:
    """A name for plotly, which takes a few tags of HTML for what they are."""
    return name(text, most).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def precision(pick: OpConfig) -> str:
    """What an op computes in, and its mode if that is not the usual one: "int8 dynamic"."""
    return str(pick.precision) if pick.mode in ("", "static") else f"{pick.precision} {pick.mode}"


def score(value: float | None) -> str:
    """A score."""
    return UNKNOWN if value is None else f"{value:.6g}"


def loss(value: float | None, criterion: Criterion) -> str:
    """Return a loss in the criterion's unit, for a place that says that it is one; a gain is called "better"."""
    return UNKNOWN if value is None else loss_text(value, criterion.is_relative)


def allowed(criterion: Criterion) -> str:
    """The loss that is allowed."""
    if criterion.target_budget is not None:
        return "as little as can be"
    return loss(criterion.allowed, criterion)


def duration(seconds: float | None) -> str:
    """Return a time in a unit that suits it, in three digits; a dash for what a clock cannot have measured."""
    if seconds is None or not abs(seconds) < MAX_SECONDS:
        return UNKNOWN
    for unit, factor in (("ns", 1e-9), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0)):
        if abs(seconds) < 999.5 * factor or unit == "s":
            break
    if unit == "s" and seconds >= 120:
        minutes = round(seconds / 60)
        return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"
    return "0" if seconds == 0 else f"{seconds / factor:.3g} {unit}"


def size(count: int | None) -> str:
    """A file size."""
    if not count:
        return UNKNOWN
    for unit, factor in (("KB", 1e3), ("MB", 1e6), ("GB", 1e9)):
        if count < 999.5 * factor or unit == "GB":
            break
    return f"{count / factor:.3g} {unit}"


def percent(part: float | None) -> str:
    """A part of a whole."""
    if part is None or not math.isfinite(part):
        return UNKNOWN
    return f"{part * 100:.3g} %" if part < 0.1 else f"{part * 100:.0f} %"


def count(number: int, what: str) -> str:
    """A number of things."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def listed(names: list[str], most: int = 3, shown: int = 40) -> str:
    """The first few of several names, and how many more there are."""
    more = len(names) - most
    return ", ".join(name(one, shown) for one in names[:most]) + (f" and {more} more" if more > 0 else "")


def last_line(error: str | None) -> str:
    """What a traceback ends with."""
    lines = (error or "").strip().splitlines()
    return name(lines[-1], 200) if lines else ""
