"""The fields of one record, each taken exactly once and of the right type."""

from __future__ import annotations

from typing import Any

from quaver.history.pickle_check import MAX_DEPTH, Malformed
from quaver.types import PlainDict

_ATOMS = frozenset((str, float, bool, bytes, type(None)))


class Fields:
    """Takes the fields out of one record."""

    def __init__(self, record: PlainDict, kind: str) -> None:
        self._left = record.copy()
        self._left.pop("kind", None)
        self._kind = kind

    def __contains__(self, name: str) -> bool:
        return name in self._left

    def any(self, name: str) -> Any:
        """A field of any type."""
        if name not in self._left:
            raise Malformed(f"field {name!r} of the {self._kind} is missing")
        return self._left.pop(name)

    def take(self, name: str, *types: type) -> Any:
        """A field of one of these types, and of no type that is derived from them."""
        value = self.any(name)
        if type(value) not in types:
            wanted = " or ".join("None" if kind is type(None) else kind.__name__ for kind in types)
            raise Malformed(f"field {name!r} of the {self._kind} must be {wanted}, not {type_name(value)}")
        return value

    def done(self) -> None:
        """Nothing may be left."""
        if self._left:
            raise Malformed(f"field {next(iter(self._left))!r:.80} of the {self._kind} is not known")


def plain(value: Any, field: str, depth: int = MAX_DEPTH - 4) -> Any:
    """A copy of `value` if it is made of builtins alone, else `Malformed` that names the part which is not."""
    kind = type(value)
    if kind in _ATOMS:
        return value
    if kind is int:
        if value.bit_length() > 1024:
            raise Malformed(f"{field} is an int of {value.bit_length()} bits, more than 1024")
        return value
    if kind not in (list, tuple, dict):
        raise Malformed(f"{field} must be made of plain builtins, not {type_name(value)}")
    if depth == 0:
        raise Malformed(f"{field:.200} is nested more than {MAX_DEPTH - 4} deep, or holds itself")
    if kind is dict:
        copy = {}
        for key, item in value.items():
            if type(key) not in (str, int):
                raise Malformed(f"{field} must have keys of type str or int, not {type_name(key)}")
            if type(key) is int and not -(2**31) <= key < 2**31:
                raise Malformed(f"{field} has a key that is an int of more than 32 bits")
            where = f"{field}[{key!r:.80}]"
            copy[key] = plain(item, where, depth - 1)
        return copy
    return kind(
        item if type(item) in _ATOMS else plain(item, f"{field}[{index}]", depth - 1)
        for index, item in enumerate(value)
    )


def versions(value: dict[Any, Any]) -> dict[str, str]:
    """A copy of package name -> version."""
    for name, version in value.items():
        if type(name) is not str or type(version) is not str:
            raise Malformed(f"versions[{name!r:.80}] must be a str under a str")
    return dict(value)


def figures(value: dict[Any, Any], field: str) -> dict[str, float]:
    """A copy of name -> figure."""
    for name, figure in value.items():
        if type(name) is not str or type(figure) is not float:
            raise Malformed(f"{field}[{name!r:.80}] must be a float under a str, not {type_name(figure)}")
    return dict(value)


def from_number(value: Any) -> Any:
    """An int where a float is meant, as a float; all else is left for the check."""
    return float(value) if type(value) is int and value.bit_length() <= 1023 else value


def type_name(value: object) -> str:
    """What to call the type of a value that is refused."""
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
