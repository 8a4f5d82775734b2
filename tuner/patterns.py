"""Regular expressions that are matched in bounded time, because a pattern may come from a file of somebody else's.

`re` tries one way after the other, of which there may be 2 to the length of the name. Here all ways are followed at
once: a part of a pattern leads from places in the name to places, and a set of places is an int with a bit for each.
That knows all of `re` but what depends on an earlier group (back references, conditions) or on the order of the ways
(atomic groups, possessive repeats).
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable
from re import _parser  # type: ignore[attr-defined]
from typing import Any

MAX_LENGTH = 1000
# Steps of all matching that is done with one `Effort`; a million take less than a second.
MAX_STEPS = 2_000_000

_PLACES = {
    "AT_BEGINNING": "^",
    "AT_BEGINNING_STRING": r"\A",
    "AT_END": "$",
    "AT_END_STRING": r"\Z",
    "AT_BOUNDARY": r"\b",
    "AT_NON_BOUNDARY": r"\B",
}
_CATEGORIES = {
    "CATEGORY_DIGIT": r"\d",
    "CATEGORY_NOT_DIGIT": r"\D",
    "CATEGORY_SPACE": r"\s",
    "CATEGORY_NOT_SPACE": r"\S",
    "CATEGORY_WORD": r"\w",
    "CATEGORY_NOT_WORD": r"\W",
}


class PatternError(ValueError):
    """A pattern is none, or cannot be matched in bounded time."""


class Effort:
    """Counts steps, so that many patterns on many names are bounded, too."""

    def __init__(self, most: int = MAX_STEPS) -> None:
        self._left = most

    def spend(self, steps: int) -> None:
        """Raise if there were too many."""
        self._left -= steps
        if self._left < 0:
            raise PatternError("it takes too long to match: write it more simply, or use fewer rules")


class Pattern:
    """A pattern that whole names are matched with."""

    def __init__(self, text: Any, effort: Effort) -> None:
        if not isinstance(text, str):
            raise PatternError(f"it is a {type(text).__name__}, not a text")
        if len(text) > MAX_LENGTH:
            raise PatternError(f"it has {len(text):,} characters, more than {MAX_LENGTH:,}")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = _parser.parse(text)
                self._parts = _parts(tree, tree.state.flags & ~re.VERBOSE)
                # A pattern that leads one way only is no danger, and `re` is faster.
                self._plain = re.compile(text) if _ways(self._parts) <= 1 else None
        except (re.error, OverflowError, RecursionError) as error:
            raise PatternError(str(error) or type(error).__name__) from None
        self._effort = effort

    def matches(self, name: str) -> bool:
        """Whether the whole name matches."""
        if self._plain is not None:
            self._effort.spend(1 + len(name) // 100)
            return self._plain.fullmatch(name) is not None
        try:
            return bool(_Walk(name, self._effort).through(self._parts, 1) >> len(name) & 1)
        except RecursionError:
            raise PatternError("it is nested too deeply") from None


class _Walk:
    """All ways through one name at once. Bit n of an int stands for the place before character n."""

    def __init__(self, name: str, effort: Effort) -> None:
        self._name, self._effort = name, effort
        self._step = 1 + len(name) // 100
        self._known: dict[int, int] = {}  # part -> the places at which it matches, of parts that have no parts

    def through(self, parts: list[Any], places: int) -> int:
        """Where parts lead to that follow each other."""
        for part in parts:
            if not places:
                break
            self._effort.spend(self._step)
            places = self._lead(part, places)
        return places

    def _lead(self, part: Any, places: int) -> int:
        kind, argument = part
        match kind:
            case "TEXT" | "ONE":
                return (places & self._where(part)) << (len(argument) if kind == "TEXT" else 1)
            case "AT":
                return places & self._where(part)
            case "GROUP":
                return self.through(argument, places)
            case "BRANCH":
                found = 0
                for branch in argument:
                    found |= self.through(branch, places)
                return found
            case "REPEAT":
                return self._repeat(argument, places)
        ahead, wanted, inner = argument
        return sum(place for place in _bits(places) if self._sees(inner, place, ahead) is wanted)

    def _repeat(self, repeat: tuple[int, int, list[Any]], places: int) -> int:
        least, most, parts = repeat
        reached = places if least == 0 else 0
        for count in range(1, most + 1):
            self._effort.spend(self._step)
            places = self.through(parts, places)
            if not places or (count > least and not places & ~reached):
                break
            if count >= least:
                places &= ~reached  # what was reached before leads nowhere new
                reached |= places
        return reached

    def _sees(self, parts: list[Any], place: int, ahead: bool) -> bool:
        """Whether parts match from a place on, or up to it."""
        if ahead:
            return self.through(parts, place) != 0
        return any(self.through(parts, start) & place for start in _bits(2 * place - 1))

    def _where(self, part: Any) -> int:
        if id(part) not in self._known:
            self._effort.spend(self._step + len(self._name) // 10)
            kind, argument = part
            self._known[id(part)] = sum(1 << place for place in self._found(kind, argument))
        return self._known[id(part)]

    def _found(self, kind: str, argument: Any) -> Iterable[int]:
        name = self._name
        if kind == "TEXT":
            place = name.find(argument)
            while place >= 0:
                yield place
                place = name.find(argument, place + 1)
        elif kind == "ONE":
            yield from (found.start() for found in argument.finditer(name))
        else:
            yield from (place for place in range(len(name) + 1) if argument.match(name, place))


def _bits(places: int) -> Iterable[int]:
    while places:
        lowest = places & -places
        yield lowest
        places ^= lowest


def _parts(tree: Iterable[Any], flags: int) -> list[Any]:
    """A parsed pattern in the few kinds of parts that a walk knows; characters that follow each other as one text."""
    parts: list[Any] = []
    for kind, argument in tree:
        part = _part(str(kind), argument, flags)
        if part[0] == "TEXT" and parts and parts[-1][0] == "TEXT":
            parts[-1] = "TEXT", parts[-1][1] + part[1]
        else:
            parts.append(part)
    return parts


def _part(kind: str, argument: Any, flags: int) -> tuple[str, Any]:
    if kind == "LITERAL" and not flags & re.IGNORECASE:
        return "TEXT", chr(argument)
    if kind in ("LITERAL", "NOT_LITERAL"):
        return "ONE", re.compile(f"[{'^' if kind == 'NOT_LITERAL' else ''}{_escaped(argument)}]", flags)
    if kind == "ANY":
        return "ONE", re.compile(".", flags)
    if kind == "IN":
        return "ONE", re.compile(f"[{''.join(_member(str(what), value) for what, value in argument)}]", flags)
    if kind == "AT":
        return "AT", re.compile(_PLACES[str(argument)], flags)
    if kind == "BRANCH":
        return "BRANCH", [_parts(branch, flags) for branch in argument[1]]
    if kind == "SUBPATTERN":
        _, added, removed, inner = argument
        return "GROUP", _parts(inner, (flags | added) & ~removed)
    if kind in ("MAX_REPEAT", "MIN_REPEAT"):
        least, most, inner = argument
        return "REPEAT", (int(least), int(most), _parts(inner, flags))
    if kind in ("ASSERT", "ASSERT_NOT"):
        direction, inner = argument
        return "LOOK", (direction > 0, kind == "ASSERT", _parts(inner, flags))
    raise PatternError(f"{kind.lower().replace('_', ' ')} cannot be matched in bounded time")


def _member(kind: str, value: Any) -> str:
    match kind:
        case "NEGATE":
            return "^"
        case "RANGE":
            return f"{_escaped(value[0])}-{_escaped(value[1])}"
        case "CATEGORY":
            return _CATEGORIES[str(value)]
    return _escaped(value)


def _escaped(code: int) -> str:
    return f"\\U{code:08x}"


def _ways(parts: list[Any]) -> int:
    """How many parts lead more than one way; a repeat around such a part counts for several."""
    found = 0
    for kind, argument in parts:
        if kind == "GROUP":
            found += _ways(argument)
        elif kind == "REPEAT":
            found += 1 + 2 * _ways(argument[2])
        elif kind in ("BRANCH", "LOOK"):
            found += 2
    return found
