"""Records of notes: named plain data, such as probe results, written as a whole or extended."""

from __future__ import annotations

from quaver.history.pickle_check import MalformedRecord
from quaver.history.records.fields import Fields, plain, type_name
from quaver.types import PlainDict, PlainMapping


def from_note(name: str, data: object) -> PlainDict:
    """Return the record of a note."""
    return {"kind": "note", "name": name, "data": plain(data, "data")}


def to_note(record: PlainDict) -> tuple[str, object]:
    """Return the name and the data of a note."""
    fields = Fields(record, "note")
    name = fields.take("name", str)
    data = fields.take_any("data")
    fields.done()
    return name, data


def from_items(name: str, items: PlainMapping) -> PlainDict:
    """Return the record of items that are added to a note."""
    return {"kind": "items", "name": name, "items": plain(dict(items), "items")}


def to_items(record: PlainDict) -> tuple[str, PlainDict]:
    """Return the name of a note and the items to add to it."""
    fields = Fields(record, "items")
    name = fields.take("name", str)
    items = fields.take("items", dict)
    fields.done()
    for key in items:
        if type(key) is not str:
            raise MalformedRecord(f"items must have keys of type str, not {type_name(key)}")
    return name, items
