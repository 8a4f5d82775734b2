"""How ops are run, written compactly: the distinct choices once, then one or two bytes an op."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from quaver.history.frames import Malformed
from quaver.ops import OpConfig, Precision


def from_choice(choice: OpConfig) -> tuple[str, str, str, str]:
    """A choice as plain strings."""
    return str(choice.precision), choice.calibration, choice.granularity, choice.scheme


def to_choices(table: list[Any]) -> list[OpConfig]:
    """Choices from what `from_choice` made of them, each of them once."""
    choices = [_to_choice(item, f"choices[{index}]") for index, item in enumerate(table)]
    if len(set(choices)) != len(choices):
        raise Malformed("field 'choices' holds the same choice twice")
    return choices


def _to_choice(item: Any, field: str) -> OpConfig:
    if type(item) is not tuple or len(item) != 4 or any(type(part) is not str for part in item):
        raise Malformed(f"{field} must be a tuple of four str")
    precision, *others = (utf8(part, field) for part in item)
    try:
        return OpConfig(Precision(precision), others[0], others[1], others[2])
    except ValueError as error:
        raise Malformed(f"{field}: {error!s:.120}") from None


def utf8(text: str, field: str) -> str:
    """Names go into fingerprints, so they must be encodable; pickle itself would let lone surrogates through."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise Malformed(f"{field} holds text that is not valid Unicode") from None
    return text


def from_indexes(indexes: Iterable[int], count: int) -> bytes:
    """One byte an index, or two (little-endian) when there are more than 255 choices."""
    if count <= 255:
        return bytes(indexes)
    if count > 65535:
        raise Malformed(f"it has {count} different choices, more than 65535")
    return b"".join(index.to_bytes(2, "little") for index in indexes)


def to_indexes(data: bytes, count: int, field: str) -> Sequence[int]:
    """The index of each op's choice, out of `count` choices."""
    indexes: Sequence[int] = data
    if count > 255:
        if len(data) % 2:
            raise Malformed(f"{field} has an odd number of bytes for indexes of two")
        indexes = [low | high << 8 for low, high in zip(data[::2], data[1::2], strict=True)]
    if indexes and max(indexes) >= count:
        raise Malformed(f"{field} points to choice {max(indexes)}, and there are {count}")
    return indexes
