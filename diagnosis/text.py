"""Figures in the sentences of a diagnosis.

Errors are squared errors over squared signal, so a percentage may exceed 100 %.
"""

from __future__ import annotations

import math


def number(value: float) -> str:
    """Return a figure with three digits."""
    return f"{value:.3g}"


def percent(part: float) -> str:
    """Return a part of a whole as a percentage."""
    if math.isnan(part):
        return "an unknown part"
    if math.isinf(part):
        return "infinitely many %"
    if part < 0.001:
        return f"{part * 100:.2g} %"
    return f"{part * 100:.0f} %" if part >= 0.1 else f"{part * 100:.1f} %"


def times(ratio: float) -> str:
    """Return a ratio in words: "12 times"."""
    return f"{ratio:.0f} times" if ratio >= 10 else f"{ratio:.1f} times"


def listed(names: list[str], limit: int = 3) -> str:
    """Return the first names, and how many more there are."""
    shown = ", ".join(names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"
