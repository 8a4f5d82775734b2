"""Bytes to frames and back: length, digest, pickle. Nothing here knows what a trial is.

A snapshot is a magic line followed by frames. A frame is a little-endian uint32 length, the 16-byte blake2b digest of
the payload, and the payload: a protocol 4 pickle of one dict of builtins, "kind" first. It is pickled without a memo,
so it is a plain tree: it shares nothing, refers back to nothing, and cannot grow when it is read.
"""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import pickletools
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, BinaryIO

MAGIC = b"quaver history.snapshot\n"
MAX_DEPTH = 64

_PREFIX = struct.Struct("<I16s")
_PAYLOAD_START = re.compile(rb"\x80\x04\x95.{8}\}\(\x8c\x04kind", re.DOTALL)  # how every record begins: {"kind":

_NUMBERS = ("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT")
_STRINGS = ("SHORT_BINUNICODE", "BINUNICODE", "SHORT_BINBYTES", "BINBYTES")
_ATOMS = frozenset(("NONE", "NEWTRUE", "NEWFALSE", *_NUMBERS, *_STRINGS))
_EMPTY = frozenset(("EMPTY_LIST", "EMPTY_DICT", "EMPTY_TUPLE"))
_ADD_ONE = {"APPEND": 1, "SETITEM": 2}  # into the container below, and how many values
_ADD_MANY = frozenset(("APPENDS", "SETITEMS"))
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


class Malformed(ValueError):
    """What is wrong with one frame. Whoever knows the file turns it into a `HistoryError`."""


def pack(record: dict[str, Any]) -> bytes:
    """The frame that holds `record`, which must consist of builtins alone."""
    buffer = io.BytesIO()
    pickler = pickle.Pickler(buffer, protocol=4)
    pickler.fast = True  # no memo
    pickler.dump(record)
    return frame(buffer.getvalue())


def frame(payload: bytes) -> bytes:
    """A payload with its length and digest in front."""
    if len(payload) > 0xFFFFFFFF:
        raise Malformed(f"{len(payload):,} bytes do not fit into one frame (4 GiB)")
    return _PREFIX.pack(len(payload), _digest(payload)) + payload


def unpack(payload: bytes) -> dict[str, Any]:
    """The record in a payload. Nothing is executed: what is not a plain tree of builtins is refused unread."""
    try:
        _check_opcodes(payload)
        record = _Builtins(io.BytesIO(payload)).load()
    except Malformed:
        raise
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError, EOFError, pickle.PickleError) as error:
        raise Malformed(f"not a well-formed pickle ({error})") from error
    if type(record) is not dict:
        raise Malformed(f"it holds a {type(record).__name__} where a dict is expected")
    return record


@dataclass(frozen=True, slots=True)
class Position:
    """How far a snapshot was read.

    Attributes:
        end: where the last whole frame ends; 0 before the magic line is complete.
        count: frames read so far.
        last: where the last whole frame begins.
        prefix: its length and digest, by which it is known again.
    """

    end: int = 0
    count: int = 0
    last: int = 0
    prefix: bytes = b""


class FrameReader:
    """Iterates over the payloads of the whole frames of a snapshot, and stops at the first that is not.

    Attributes:
        size: bytes in the file when reading began; what a running writer adds later is not looked at.
        position: how far it has read; it goes on from where an earlier reader stopped.
        torn: after the iteration: whether the bytes that are left are what one interrupted write leaves behind.
    """

    def __init__(self, stream: BinaryIO, position: Position | None = None) -> None:
        self._stream = stream
        self.size = stream.seek(0, os.SEEK_END)
        self.position = position or Position()
        self.torn = False

    def magic(self) -> bytes:
        """The first bytes of the file, `MAGIC` if it is a snapshot."""
        self._stream.seek(0)
        return self._stream.read(min(len(MAGIC), self.size))

    def continues(self) -> bool:
        """Whether the file still holds, where it was, the last frame that was read before."""
        self._stream.seek(self.position.last)
        return self.size >= self.position.end and self._stream.read(len(self.position.prefix)) == self.position.prefix

    def __iter__(self) -> Iterator[bytes]:
        self.position = replace(self.position, end=max(self.position.end, len(MAGIC)))
        while (found := self._next()) is not None:
            prefix, payload = found
            start = self.position.end
            self.position = Position(start + len(prefix) + len(payload), self.position.count + 1, start, prefix)
            yield payload
        self.torn = self._is_torn()

    @property
    def lost(self) -> int:
        """How many bytes follow the last whole frame."""
        return max(0, self.size - self.position.end)

    def _next(self) -> tuple[bytes, bytes] | None:
        self._stream.seek(self.position.end)
        if self.lost < _PREFIX.size:
            return None
        prefix = self._stream.read(_PREFIX.size)
        if len(prefix) < _PREFIX.size:
            return None
        length, digest = _PREFIX.unpack(prefix)
        if length > self.lost - _PREFIX.size:
            return None
        payload = self._stream.read(length)
        return (prefix, payload) if _digest(payload) == digest else None

    def _is_torn(self) -> bool:
        if not self.lost:
            return False
        self._stream.seek(self.position.end)
        tail = self._stream.read(self.lost)
        if not tail.strip(b"\0"):
            return True  # after a power cut the new size may be on disk without the data
        if len(_PAYLOAD_START.findall(tail)) > 1:
            return False  # a second frame begins in it: the first one's length is what got damaged
        return len(tail) < _PREFIX.size or _PREFIX.size + int(_PREFIX.unpack_from(tail)[0]) >= len(tail)


class _Builtins(pickle.Unpickler):
    """Resolves nothing. The opcodes that would ask are refused before; this is the second lock on the door."""

    def find_class(self, module: str, name: str) -> Any:
        raise Malformed(f"it asks for {module}.{name}")

    def persistent_load(self, pid: Any) -> Any:
        raise Malformed("it asks for a persistent object")


def _digest(payload: bytes) -> bytes:
    return hashlib.blake2b(payload, digest_size=16).digest()


def _check_opcodes(payload: bytes) -> None:
    """Walk the pickle without executing it: only opcodes that build a tree of builtins, and of bounded depth.

    Depth is bounded here and not after loading, because hashing a deeply nested tuple (as a key) overflows the C stack.
    """
    heights: list[int] = []  # of the values on the unpickler's stack
    marks: list[int] = []
    position = -1
    for opcode, argument, place in pickletools.genops(payload):
        name, position = opcode.name, place or 0
        if name in _ATOMS:
            heights.append(0)
            continue
        if name == "MARK":
            marks.append(len(heights))
            continue
        if name in _EMPTY:
            heights.append(1)
        elif name in _ADD_ONE:
            inner = _pop(heights, len(heights) - _ADD_ONE[name])
            heights[-1] = max(heights[-1], inner + 1)
        elif name in _ADD_MANY:
            inner = _pop(heights, marks.pop())
            heights[-1] = max(heights[-1], inner + 1)
        elif name in _TUPLES:
            heights.append(_pop(heights, len(heights) - _TUPLES[name]) + 1)
        elif name == "TUPLE":
            heights.append(_pop(heights, marks.pop()) + 1)
        elif name == "PROTO":
            if position != 0 or argument != 4:
                raise Malformed("its pickle protocol is not 4")
        elif name == "FRAME":
            if int(argument or 0) > len(payload):
                raise Malformed("its pickle is longer than the frame")
        elif name != "STOP":
            raise Malformed(f"its pickle does more than hold data (opcode {name})")
        if heights and heights[-1] > MAX_DEPTH:
            raise Malformed(f"its data is nested more than {MAX_DEPTH} deep")
    if not payload.startswith(pickle.PROTO + b"\x04"):
        raise Malformed("its pickle protocol is not 4")
    if len(heights) != 1 or marks or position != len(payload) - 1:
        raise Malformed("its pickle holds more or less than one value")


def _pop(heights: list[int], start: int) -> int:
    """Take the values from `start` on off the stack and give the height of the highest."""
    if start < 0:
        raise Malformed("its pickle takes more values than it made")
    highest = max(heights[start:], default=0)
    del heights[start:]
    return highest
