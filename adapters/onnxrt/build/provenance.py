"""Provenance in ONNX files: behind the bytes of the model, which stay as they were scored.

The fields of a protobuf message may stand in any order, and of a field with one value the last one counts. So the file
is the model as it was scored, followed by a new `producer_name` and the properties. Without that tail it is the scored
model again, byte for byte, and its hash can be checked against the history.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

from onnx import ModelProto, StringStringEntryProto, TensorProto

from quaver.adapters.onnxrt.build import protobuf
from quaver.errors import ModelError
from quaver.ops import BF16
from quaver.provenance import (
    FP32_NODES,
    INFERENCE_PRECISION,
    ORIGINAL_NAME,
    ORIGINAL_VERSION,
    PREFIX,
    own_properties,
)

PRODUCER = "quaver"
# The fields of the tail; it starts with the first of them.
_TAIL_FIELDS = (protobuf.MODEL_PRODUCER, protobuf.MODEL_PRODUCER_VERSION, protobuf.MODEL_PROPERTY)
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_PIECE = 16 * 2**20
# Judgement: no property is longer. A tampered length must not fill the memory.
_MAX_TEXT = 16 * 2**20


class _Field(NamedTuple):
    """A field of a protobuf message in a file: its number, and where it and its payload start and end."""

    number: int
    start: int
    payload: int
    end: int


def with_original(properties: Mapping[str, str], shell: bytes) -> dict[str, str]:
    """Add the producer of the float model to the properties, because `producer_name` is replaced.

    Args:
        properties: of the saved model.
        shell: a serialized `ModelProto` that has the producer of the float model.
    """
    model = ModelProto.FromString(shell)
    original = {ORIGINAL_NAME: model.producer_name, ORIGINAL_VERSION: model.producer_version}
    return {**properties, **{name: text for name, text in original.items() if text}}


def bf16_properties(fp32_nodes: Sequence[str]) -> bytes:
    """Return what marks a model whose float part runs in bf16, except for these nodes. It stands before the graph."""
    properties = {INFERENCE_PRECISION: str(BF16), FP32_NODES: json.dumps(fp32_nodes) if fp32_nodes else ""}
    return b"".join(protobuf.property_entry(protobuf.MODEL_PROPERTY, *item) for item in properties.items() if item[1])


def without_provenance(model: ModelProto) -> None:
    """Restore the original producer of a model that quaver saved, and drop quaver's properties."""
    own_entries = own_properties({entry.key: entry.value for entry in model.metadata_props})
    if own_entries:
        model.producer_name, model.producer_version = (
            own_entries.get(ORIGINAL_NAME, ""),
            own_entries.get(ORIGINAL_VERSION, ""),
        )
        foreign_entries = [entry for entry in model.metadata_props if not entry.key.startswith(PREFIX)]
        del model.metadata_props[:]
        model.metadata_props.extend(foreign_entries)


def tail(properties: Mapping[str, str]) -> bytes:
    """Return what follows the model in a file: the producer, and the properties. Empty without properties."""
    if not properties:
        return b""
    version = properties.get(f"{PREFIX}version", "")
    parts = [protobuf.block(protobuf.MODEL_PRODUCER, PRODUCER.encode())]
    parts.append(protobuf.block(protobuf.MODEL_PRODUCER_VERSION, version.encode()))
    later = {key: text for key, text in properties.items() if key not in (INFERENCE_PRECISION, FP32_NODES)}
    parts += [protobuf.property_entry(protobuf.MODEL_PROPERTY, key, text) for key, text in later.items()]
    return b"".join(parts)


def split(path: Path) -> tuple[int, dict[str, str]]:
    """Return how many bytes of a file are the model as it was scored, and quaver's properties behind them.

    The length is that of the file if it has no tail: quaver did not write it, or another tool rewrote it.
    """
    properties: dict[str, str] = {}
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        length = size
        for part in _fields(file, 0, size):
            if part.number == protobuf.MODEL_PROPERTY:
                entry = StringStringEntryProto.FromString(_read(file, part))
                properties[entry.key] = entry.value
            if part.number == protobuf.MODEL_PRODUCER and _read(file, part) == PRODUCER.encode():
                length = part.start
            elif part.number not in _TAIL_FIELDS:
                length = size
    own = own_properties(properties)
    return (length if own else size), own


def read_provenance(path: Path) -> tuple[dict[str, str], str]:
    """Return quaver's properties in a file, and the sha256 of the model before them; empty if that cannot be told."""
    length, properties = split(path)
    if length == path.stat().st_size or _has_external_data(path):
        return properties, ""
    digest = hashlib.sha256()
    for piece in pieces(path, length):
        digest.update(piece)
    return properties, digest.hexdigest()


def pieces(path: Path, length: int | None = None) -> Iterator[bytes]:
    """Yield the first bytes of a file, piece by piece; all of them if no length is given."""
    with open(path, "rb") as file:
        left = os.fstat(file.fileno()).st_size if length is None else length
        while left and (piece := file.read(min(_PIECE, left))):
            left -= len(piece)
            yield piece


def relocated(path: Path, location: str) -> bytes:
    """Return the bytes of a model with another location for its external data, and all else as it was."""
    content = path.read_bytes()
    with open(path, "rb") as file:
        parts = []
        for part in _fields(file, 0, len(content)):
            whole = content[part.start : part.end]
            if part.number == protobuf.MODEL_GRAPH:
                inner = _fields(file, part.payload, part.end)
                entries = [_moved(content[entry.start : entry.end], entry, location) for entry in inner]
                whole = protobuf.block(protobuf.MODEL_GRAPH, b"".join(entries))
            parts.append(whole)
    return b"".join(parts)


def _moved(whole: bytes, entry: _Field, location: str) -> bytes:
    if entry.number != protobuf.GRAPH_INITIALIZER:
        return whole
    tensor = TensorProto.FromString(whole[entry.payload - entry.start :])
    if tensor.data_location != TensorProto.EXTERNAL:
        return whole
    place = {item.key: item.value for item in tensor.external_data}
    offset, length = int(place.get("offset", 0)), int(place["length"])
    return protobuf.external_tensor(tensor.name, tensor.dims, tensor.data_type, location, offset, length)


def _has_external_data(path: Path) -> bool:
    """Tell whether weights of a model lie in a second file, as quaver writes them over 2 GB."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        graphs = (part for part in _fields(file, 0, size) if part.number == protobuf.MODEL_GRAPH)
        entries = (entry for graph in graphs for entry in _fields(file, graph.payload, graph.end))
        tensors = (entry for entry in entries if entry.number == protobuf.GRAPH_INITIALIZER)
        parts = (part for tensor in tensors for part in _fields(file, tensor.payload, tensor.end))
        places = (_varint(file, part.payload)[0] for part in parts if part.number == protobuf.TENSOR_LOCATION)
        return TensorProto.EXTERNAL in places


def _read(file: BinaryIO, part: _Field) -> bytes:
    if part.end - part.payload > _MAX_TEXT:
        raise ModelError(f"a property of the model file has {part.end - part.payload:,} bytes, more than {_MAX_TEXT:,}")
    file.seek(part.payload)
    return file.read(part.end - part.payload)


def _fields(file: BinaryIO, start: int, end: int) -> Iterator[_Field]:
    """Yield the fields of the message between two places of a file; large ones are skipped, not read."""
    while start < end:
        tag, payload = _varint(file, start)
        number, kind = tag >> 3, tag & 7
        if kind == _BYTES:
            length, payload = _varint(file, payload)
            after = payload + length
        elif kind == _VARINT:
            after = _varint(file, payload)[1]
        elif kind in (_FIXED32, _FIXED64):
            after = payload + (4 if kind == _FIXED32 else 8)
        else:
            after = end + 1
        if after > end:
            raise ModelError("the model file is damaged, or no ONNX model: its parts do not add up to its length")
        yield _Field(number, start, payload, after)
        start = after


def _varint(file: BinaryIO, position: int) -> tuple[int, int]:
    """Return the number at a place of a file, and where it ends."""
    file.seek(position)
    value = 0
    for index, byte in enumerate(file.read(10)):
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value, position + index + 1
    raise ModelError("the model file is damaged, or no ONNX model: it ends within a number")
