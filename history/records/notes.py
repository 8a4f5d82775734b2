"""Notes: named plain data, such as what a probe found, written as a whole or added to."""

from __future__ import annotations

from typing import Any

from quaver.history.pickle_check import Malformed
from quaver.history.records.fields import Fields, plain, type_name
from quaver.types import PlainDict, PlainMapping


def from_note(name: str, data: Any) -> PlainDict:
    """The record of a note."""
    return {"kind": "note", "name": name, "data": plain(data, "data")}


def to_note(record: PlainDict) -> tuple[str, Any]:
    """The name and the data of a note."""
    taken = Fields(record, "note")
    name = taken.take("name", str)
    data = taken.any("data")
    taken.done()
    return name, data


def from_items(name: str, items: PlainMapping) -> PlainDict:
    """The record of what is added to a note."""
    return {"kind": "items", "name": name, "items": plain(dict(items), "items")}


def to_items(record: PlainDict) -> tuple[str, PlainDict]:
    """The name of a note, and what to add to it."""
    taken = Fields(record, "items")
    name = taken.take("name", str)
    items = taken.take("items", dict)
    taken.done()
    for key in items:
        if type(key) is not str:
            raise Malformed(f"items must have keys of type str, not {type_name(key)}")
    return name, items
