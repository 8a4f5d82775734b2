"""Check the fields of one record: each is read exactly once and has the right type."""

from __future__ import annotations

from typing import Any, TypeVar

from quaver.history.pickle_check import MAX_DEPTH, MalformedRecord
from quaver.types import PlainDict

T = TypeVar("T")

_ATOMS = frozenset((str, float, bool, bytes, type(None)))


class Fields:
    """The fields of one record that were not read yet."""

    def __init__(self, record: PlainDict, kind: str) -> None:
        self._unread = record.copy()
        self._unread.pop("kind", None)
        self._kind = kind

    def __contains__(self, name: str) -> bool:
        return name in self._unread

    def take_any(self, name: str) -> object:
        """Return a field of any type and mark it as read."""
        if name not in self._unread:
            raise MalformedRecord(f"field {name!r} of the {self._kind} is missing")
        return self._unread.pop(name)

    def take(self, name: str, kind: type[T]) -> T:
        """Return a field of this type (and of no derived type), and mark it as read."""
        value = self.take_any(name)
        if type(value) is not kind:
            raise self._wrong_type(name, kind.__name__, value)
        return value

    def take_optional(self, name: str, kind: type[T]) -> T | None:
        """Return a field of this type or None, and mark it as read."""
        value = self.take_any(name)
        if value is None or type(value) is kind:
            return value
        raise self._wrong_type(name, f"{kind.__name__} or None", value)

    def _wrong_type(self, name: str, expected: str, value: object) -> MalformedRecord:
        return MalformedRecord(f"field {name!r} of the {self._kind} must be {expected}, not {type_name(value)}")

    def done(self) -> None:
        """Refuse a record that holds other fields."""
        if self._unread:
            raise MalformedRecord(f"field {next(iter(self._unread))!r:.80} of the {self._kind} is not known")


def plain(value: Any, field: str, depth: int = MAX_DEPTH - 4) -> Any:
    """Return a copy of a value that is made of builtins.

    Raises:
        MalformedRecord: names the part that is not a builtin.
    """
    kind = type(value)
    if kind in _ATOMS:
        return value
    if kind is int:
        if value.bit_length() > 1024:
            raise MalformedRecord(f"{field} is an int of {value.bit_length()} bits, more than 1024")
        return value
    if kind not in (list, tuple, dict):
        raise MalformedRecord(f"{field} must be made of plain builtins, not {type_name(value)}")
    if depth == 0:
        raise MalformedRecord(f"{field:.200} is nested more than {MAX_DEPTH - 4} deep, or holds itself")
    if kind is dict:
        copy = {}
        for key, item in value.items():
            if type(key) not in (str, int):
                raise MalformedRecord(f"{field} must have keys of type str or int, not {type_name(key)}")
            if type(key) is int and not -(2**31) <= key < 2**31:
                raise MalformedRecord(f"{field} has a key that is an int of more than 32 bits")
            where = f"{field}[{key!r:.80}]"
            copy[key] = plain(item, where, depth - 1)
        return copy
    return kind(
        item if type(item) in _ATOMS else plain(item, f"{field}[{index}]", depth - 1)
        for index, item in enumerate(value)
    )


def versions(value: PlainDict) -> dict[str, str]:
    """Return a copy of package name -> version."""
    for name, version in value.items():
        if type(name) is not str or type(version) is not str:
            raise MalformedRecord(f"versions[{name!r:.80}] must be a str under a str")
    return dict(value)


def figures(value: PlainDict, field: str) -> dict[str, float]:
    """Return a copy of name -> figure."""
    for name, figure in value.items():
        if type(name) is not str or type(figure) is not float:
            raise MalformedRecord(f"{field}[{name!r:.80}] must be a float under a str, not {type_name(figure)}")
    return dict(value)


def from_number(value: float | None) -> float | None:
    """Return an int as the float it stands for; other values are left for the check."""
    return float(value) if type(value) is int and value.bit_length() <= 1023 else value


def type_name(value: object) -> str:
    """Return a name for the type of a refused value."""
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
