"""Spell repairs in a config: a name, and after a colon a strength where there is one."""

from __future__ import annotations

from quaver.errors import SettingsError


def name_of(spelled: str) -> str:
    """Return the name of a repair, without its strength."""
    return spelled.partition(":")[0]


def strength_of(spelled: str) -> float | None:
    """Return the strength of a repair, from 0 to 1; None if it has none."""
    name, colon, text = spelled.partition(":")
    if not colon:
        return None
    try:
        strength = float(text)
    except ValueError:
        strength = -1.0
    if not 0.0 <= strength <= 1.0 or text.split() != [text]:
        raise SettingsError(f"repair {spelled!r}: the strength of {name!r} must be a number from 0 to 1, not {text!r}")
    return strength


def order(spelled: str) -> tuple[bool, str]:
    """Return a sort key: repairs that change the weight come before repairs that measure its error."""
    return strength_of(spelled) is None, spelled
