"""Names and figures in the views, in addition to `quaver.formatting`.

Names come from model files, which may be hostile. So they are bounded in length, printable, and escaped for plotly.
"""

from __future__ import annotations

import math

from quaver import formatting
from quaver.formatting import MAX_SECONDS, MISSING, file_size, first_names, milliseconds, printable
from quaver.ops import OpConfig

# Judgement: characters of a name that are shown; the middle of a longer one is left out.
MAX_NAME = 64
# Judgement: characters of an error message in a table.
MAX_ERROR = 200


def name(text: str, limit: int = MAX_NAME) -> str:
    """Return a name on one line with at most `limit` characters; what cannot be printed is escaped."""
    if len(text) > limit:
        head = (limit - 1) // 3
        text = f"{text[:head]}…{text[len(text) - (limit - 1 - head) :]}"
    return printable(text)


def figure_text(text: str, limit: int = MAX_NAME) -> str:
    """Return a name for plotly, which would obey a few HTML tags."""
    return name(text, limit).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def precision(choice: OpConfig) -> str:
    """Return the precision of an op, and its mode unless that is static: "int8 dynamic"."""
    return str(choice.precision) if choice.mode in ("", "static") else f"{choice.precision} {choice.mode}"


def duration(seconds: float | None) -> str:
    """Return a duration, in ms or µs below one second; a dash for one that cannot have been measured."""
    if seconds is None or not 0 <= seconds < MAX_SECONDS:
        return MISSING
    return milliseconds(seconds * 1e3) if seconds < 0.9995 else formatting.duration(seconds)


def time_text(seconds: float) -> str:
    """Return the time of an op. An op without a time of its own is part of another op's kernel."""
    return "fused" if seconds == 0 else duration(seconds)


def size(count: int | None) -> str:
    """Return a file size; a dash if it is not known."""
    return file_size(count) if count else MISSING


def percent(part: float | None) -> str:
    """Return a part of a whole as a percentage; a dash if it is not known."""
    if part is None or not math.isfinite(part):
        return MISSING
    return formatting.percent(part)


def listed(names: list[str], limit: int = 3, name_limit: int = 40) -> str:
    """Return the first names, and how many more there are."""
    return first_names([name(entry, name_limit) for entry in names], limit)


def last_line(error: str | None) -> str:
    """Return the last line of a traceback."""
    return name(formatting.last_line(error), MAX_ERROR)
