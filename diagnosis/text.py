"""Figures as sentences write them."""

from __future__ import annotations

import math


def number(value: float) -> str:
    """A figure with three digits."""
    return f"{value:.3g}"


def percent(part: float) -> str:
    """A part of a whole; errors can be larger than that."""
    if math.isnan(part):
        return "an unknown part"
    if math.isinf(part):
        return "infinitely many percent"
    if part < 0.001:
        return f"{part * 100:.2g} %"
    return f"{part * 100:.0f} %" if part >= 0.1 else f"{part * 100:.1f} %"


def times(ratio: float) -> str:
    """How many times as much."""
    return f"{ratio:.0f} times" if ratio >= 10 else f"{ratio:.1f} times"


def seconds(value: float) -> str:
    """A short duration."""
    if value >= 1:
        return f"{value:.3g} s"
    return f"{value * 1e3:.3g} ms" if value >= 1e-3 else f"{value * 1e6:.3g} us"


def listed(names: list[str], most: int = 3) -> str:
    """A few names, and how many more there are."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
