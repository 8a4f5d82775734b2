"""How repairs are spelled in a configuration: a name, and behind a colon a strength where one can be chosen."""

from __future__ import annotations

from quaver.errors import SettingsError


def name_of(spelled: str) -> str:
    """The name of a repair, without its strength."""
    return spelled.partition(":")[0]


def strength_of(spelled: str) -> float | None:
    """The strength behind the name, between 0 and 1; None where none is told."""
    name, colon, told = spelled.partition(":")
    if not colon:
        return None
    try:
        strength = float(told)
    except ValueError:
        strength = -1.0
    if not 0.0 <= strength <= 1.0 or told.split() != [told]:
        raise SettingsError(f"repair {spelled!r}: the strength of {name!r} must be a number from 0 to 1, not {told!r}")
    return strength


def order(spelled: str) -> tuple[bool, str]:
    """A key to sort repairs by: those that change the weight come before those that look at its error."""
    return strength_of(spelled) is None, spelled
