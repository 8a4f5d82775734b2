"""Provenance in .tflite files: metadata in front of the bytes of the model, which stay as they were scored.

A .tflite is a flatbuffer: tables that point forward to others by distance. So a new table `Model` with one more buffer
and one more metadata entry is written in front, and points into the bytes of the model behind it, which are not
touched. Without that head the file is the scored model again, and its hash can be checked against the history.

"""

from __future__ import annotations

import hashlib
import json
import logging
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from quaver.provenance import own_properties

log = logging.getLogger(__name__)

NAME = b"quaver.provenance"
_IDENTIFIER = b"TFL3"
# Fields of the table Model in LiteRT's schema; all but the version are distances to vectors or strings.
_VERSION, _BUFFERS, _METADATA, _MODEL_FIELDS = 0, 4, 6, 10
_BUFFER_OFFSET = 1  # in the table Buffer: where data behind the flatbuffer starts, counted from the start of the file
_NO_PLACE = 2**31 - 2**20
# Data that LiteRT maps must keep its place modulo this.
_ALIGNMENT = 64


class _Model(NamedTuple):
    """The parts of a file's table Model that a new one needs: its version, and places in the file."""

    version: int
    fields: dict[int, int]
    buffers: list[int]
    metadata: list[int]


def head(content: bytes, properties: Mapping[str, str]) -> bytes:
    """Return the bytes to put in front of a model to give its file these properties; none if there are none.

    None, too, for a model that has no room for it: data behind the flatbuffer, or fields of a later schema.
    """
    if not properties:
        return b""
    model = _read_model(content)
    if model is None or len(content) > _NO_PLACE:
        log.warning("the .tflite does not say where it comes from: it keeps data outside its flatbuffer, or is too new")
        return b""
    data = json.dumps(dict(properties), sort_keys=True).encode()
    length = len(_written(model, data, 0))
    return _written(model, data, length)


def split(content: bytes) -> tuple[int, dict[str, str]]:
    """Return where the model starts in the bytes of a file as it was scored, and the properties of quaver before it.

    It starts at 0 if quaver did not write the file, or another tool rewrote it since.
    """
    place = _provenance(content)
    if place is None:
        return 0, {}
    start, end = place
    try:
        properties = json.loads(content[start:end])
    except (ValueError, RecursionError):
        return 0, {}
    if not isinstance(properties, dict) or not all(isinstance(text, str) for text in properties.values()):
        return 0, {}
    behind = -(-end // _ALIGNMENT) * _ALIGNMENT
    is_model = content[behind + 4 : behind + 8] == _IDENTIFIER and _points_behind(content, behind)
    return (behind if is_model else 0), own_properties(properties)


def read_provenance(path: Path) -> tuple[dict[str, str], str]:
    """Return quaver's properties in a file, and the sha256 of the model in it; empty if that cannot be told."""
    content = path.read_bytes()
    start, properties = split(content)
    return properties, hashlib.sha256(memoryview(content)[start:]).hexdigest() if start else ""


def _written(model: _Model, data: bytes, behind: int) -> bytes:
    """Return the head for a model that starts at `behind`."""
    out = bytearray(struct.pack("<I4s", 0, _IDENTIFIER))
    fields = {_VERSION: 0, **model.fields, _BUFFERS: 0, _METADATA: 0}
    table = _start_table(out, _MODEL_FIELDS, sorted(fields))
    struct.pack_into("<I", out, 0, table.start)
    struct.pack_into("<I", out, table.places[_VERSION], model.version)
    for field, target in model.fields.items():
        _point(out, table.places[field], behind + target)
    buffers = _start_vector(out, table.places[_BUFFERS], len(model.buffers) + 1)
    metadata = _start_vector(out, table.places[_METADATA], len(model.metadata) + 1)
    for place, target in zip(buffers, model.buffers, strict=False):
        _point(out, place, behind + target)
    for place, target in zip(metadata, model.metadata, strict=False):
        _point(out, place, behind + target)
    entry = _start_table(out, 2, [0, 1])
    _point(out, metadata[-1], entry.start)
    _point(out, entry.places[0], len(out))
    struct.pack_into("<I", out, entry.places[1], len(model.buffers))
    out += struct.pack("<I", len(NAME)) + NAME + b"\0"
    _align(out, 4)
    buffer = _start_table(out, 1, [0])
    _point(out, buffers[-1], buffer.start)
    while (len(out) + 4) % 16:  # the data of a buffer starts at a multiple of 16, behind its length
        out += bytes(4)
    _point(out, buffer.places[0], len(out))
    out += struct.pack("<I", len(data)) + data
    _align(out, _ALIGNMENT)
    return bytes(out)


class _Table(NamedTuple):
    """A table that is being written: where it starts, and where each of its fields lies."""

    start: int
    places: dict[int, int]


def _start_table(out: bytearray, slots: int, fields: list[int]) -> _Table:
    """Append the layout of a table, and room for its fields, of four bytes each."""
    offsets = {field: 4 + 4 * index for index, field in enumerate(fields)}
    layout = struct.pack("<HH", 4 + 2 * slots, 4 + 4 * len(fields))
    layout += b"".join(struct.pack("<H", offsets.get(slot, 0)) for slot in range(slots))
    at = len(out)
    out += layout
    _align(out, 4)
    start = len(out)
    out += struct.pack("<i", start - at) + bytes(4 * len(fields))
    return _Table(start, {field: start + offset for field, offset in offsets.items()})


def _start_vector(out: bytearray, pointer: int, length: int) -> list[int]:
    """Append room for a vector of distances that a field points to; the places of its entries."""
    _point(out, pointer, len(out))
    out += struct.pack("<I", length)
    first = len(out)
    out += bytes(4 * length)
    return [first + 4 * index for index in range(length)]


def _point(out: bytearray, place: int, target: int) -> None:
    struct.pack_into("<I", out, place, max(target - place, 0))


def _align(out: bytearray, multiple: int) -> None:
    out += bytes(-len(out) % multiple)


def _number(content: bytes, place: int, form: str = "<I") -> int:
    return int(struct.unpack_from(form, content, place)[0])


def _field(content: bytes, table: int, slot: int) -> int | None:
    """Return where a field of a table lies; None if the table does not have it."""
    layout = table - _number(content, table, "<i")
    if layout < 0 or 4 + 2 * slot >= _number(content, layout, "<H"):
        return None
    offset = _number(content, layout + 4 + 2 * slot, "<H")
    return table + offset if offset else None


def _target(content: bytes, place: int) -> int:
    return place + _number(content, place)


def _vector(content: bytes, table: int, slot: int) -> list[int]:
    """Return the places of the tables in a vector of tables."""
    place = _field(content, table, slot)
    if place is None:
        return []
    vector = _target(content, place)
    count = _number(content, vector)
    if vector + 4 + 4 * count > len(content):
        raise struct.error("a vector that does not end within the file")
    return [_target(content, vector + 4 + 4 * index) for index in range(count)]


def _read_model(content: bytes) -> _Model | None:
    """Return the table Model of a file; None if a head cannot stand before it."""
    table = _number(content, 0)
    layout = table - _number(content, table, "<i")
    if (_number(content, layout, "<H") - 4) // 2 > _MODEL_FIELDS:
        return None
    version = _field(content, table, _VERSION)
    fields = {}
    for slot in range(1, _MODEL_FIELDS):
        place = _field(content, table, slot)
        if place is not None and slot not in (_BUFFERS, _METADATA):
            fields[slot] = _target(content, place)
    buffers = _vector(content, table, _BUFFERS)
    for buffer in buffers:
        outside = _field(content, buffer, _BUFFER_OFFSET)
        if outside is not None and _number(content, outside, "<Q") > 1:
            return None
    return _Model(
        0 if version is None else _number(content, version), fields, buffers, _vector(content, table, _METADATA)
    )


def _provenance(content: bytes) -> tuple[int, int] | None:
    """Return where quaver's metadata lies in a file; None if it has none. The last entry of that name counts."""
    if content[4:8] != _IDENTIFIER:
        return None
    try:
        table = _number(content, 0)
        buffers = _vector(content, table, _BUFFERS)
        for entry in reversed(_vector(content, table, _METADATA)):
            name, index = _field(content, entry, 0), _field(content, entry, 1)
            if name is None or _text(content, _target(content, name)) != NAME:
                continue
            place = _field(content, buffers[0 if index is None else _number(content, index)], 0)
            if place is None:
                return None
            data = _target(content, place)
            return data + 4, data + 4 + _number(content, data)
    except (struct.error, IndexError):
        return None
    return None


def _points_behind(content: bytes, behind: int) -> bool:
    """Tell whether the graphs of a file lie behind a place, as they do where a head stands before a model."""
    subgraphs = _field(content, _number(content, 0), 2)
    return subgraphs is not None and _target(content, subgraphs) >= behind


def _text(content: bytes, place: int) -> bytes:
    return content[place + 4 : place + 4 + min(_number(content, place), len(NAME) + 1)]
