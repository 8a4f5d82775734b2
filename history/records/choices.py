"""Store how ops run compactly: the distinct choices once, then one or two bytes per op."""

from __future__ import annotations

import functools
import sys
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence

from quaver.history.pickle_check import MalformedRecord
from quaver.ops import MODES, Coded, OpConfig, Precision

# The mode that is not written, because most choices have it.
_DEFAULT_MODE = MODES[0]


def from_choice(choice: OpConfig) -> tuple[str | tuple[str, ...], ...]:
    """Return a choice as plain strings: four if it is static and not repaired, else with mode and repairs too."""
    strings = str(choice.precision), choice.calibration, choice.granularity, choice.scheme
    if choice.mode in ("", _DEFAULT_MODE) and not choice.repairs:
        return strings
    return *strings, choice.mode, choice.repairs


def to_choices(table: list[object]) -> list[OpConfig]:
    """Return choices from the output of `from_choice`, each of them once."""
    choices = [_to_choice(item, f"choices[{index}]") for index, item in enumerate(table)]
    if len(set(choices)) != len(choices):
        raise MalformedRecord("field 'choices' holds the same choice twice")
    return choices


def _to_choice(item: object, field: str) -> OpConfig:
    if type(item) is not tuple or len(item) not in (4, 6) or any(type(part) is not str for part in item[:5]):
        raise MalformedRecord(f"{field} must be a tuple of four str, or of five and a tuple")
    mode, repairs = item[4:] or (_DEFAULT_MODE, ())
    if mode not in MODES:
        raise MalformedRecord(f"{field}: unknown mode {mode!r:.80}; known are {', '.join(MODES)}")
    _check_repairs(repairs, field)
    try:
        return _choice(*item[:4], mode, repairs)
    except UnicodeEncodeError:
        raise MalformedRecord(f"{field} holds text that is not valid Unicode") from None
    except ValueError as error:
        raise MalformedRecord(f"{field}: {error!s:.120}") from None


@functools.lru_cache(1024)
def _choice(
    precision: str, calibration: str, granularity: str, scheme: str, mode: str, repairs: tuple[str, ...]
) -> OpConfig:
    """Return a cached choice, because thousands of trials share a few choices."""
    "".join((precision, calibration, granularity, scheme)).encode()
    return OpConfig(Precision(precision), calibration, granularity, scheme, mode, repairs)


def _check_repairs(repairs: object, field: str) -> None:
    if type(repairs) is not tuple or any(type(name) is not str for name in repairs):
        raise MalformedRecord(f"the repairs of {field} must be a tuple of str")
    for name in repairs:
        if not utf8(name, field) or name.split() != [name]:  # a fingerprint separates them by spaces
            raise MalformedRecord(f"the repairs of {field} must be names without spaces, not {name!r:.80}")


def utf8(text: str, field: str) -> str:
    """Return text that can be encoded.

    Names go into fingerprints, and pickle itself would accept lone surrogates.
    """
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise MalformedRecord(f"{field} holds text that is not valid Unicode") from None
    return text


def from_indexes(indexes: Iterable[int], count: int) -> bytes:
    """Return one byte per index, or two (little-endian) when there are more than 255 choices."""
    if count <= 255:
        return bytes(indexes)
    if count > 65535:
        raise MalformedRecord(f"it has {count} different choices, more than 65535")
    return b"".join(index.to_bytes(2, "little") for index in indexes)


def to_indexes(data: bytes, count: int, field: str) -> Sequence[int]:
    """Return the index of each op's choice, out of `count` choices."""
    indexes: Sequence[int] = data
    if count > 255:
        if len(data) % 2:
            raise MalformedRecord(f"{field} has an odd number of bytes for indexes of two")
        indexes = array("H", data)
        if sys.byteorder == "big":
            indexes.byteswap()
    if indexes and max(indexes) >= count:
        raise MalformedRecord(f"{field} points to choice {max(indexes)}, and there are {count}")
    return indexes


class CompactChoices(Coded):
    """Choices of ops at one or two bytes per op, so that 20,000 trials of a large model fit into memory."""

    __slots__ = ("_choices", "_picks", "_places")

    def __init__(self, places: Mapping[str, int], choices: Sequence[OpConfig], picks: Sequence[int]) -> None:
        self._places, self._choices, self._picks = places, choices, picks

    def __getitem__(self, name: str) -> OpConfig:
        return self._choices[self._picks[self._places[name]]]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._picks)

    def coded(self) -> tuple[Sequence[OpConfig], Sequence[int]]:
        """Return the choices and, for each op in order, the index of its choice."""
        return self._choices, self._picks

    def items(self) -> list[tuple[str, OpConfig]]:  # type: ignore[override]
        """Return names and choices, in the order of the ops."""
        choices = self._choices
        return [(name, choices[pick]) for name, pick in zip(self._places, self._picks, strict=True)]
