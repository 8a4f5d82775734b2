"""Bytes to frames and back: length, digest, pickle. Nothing here knows what a trial is.

A snapshot is a magic line followed by frames. A frame is a little-endian uint32 length, the 16-byte blake2b digest of
the payload, and the payload: a protocol 4 pickle of one dict of builtins, "kind" first. It is pickled without a memo,
so it is a plain tree: it shares nothing, refers back to nothing, and cannot grow when it is read.

A frame whose digest is wrong is passed over: its length says where the next one begins; if that does not lead to a
whole frame, the next one is looked for by how every payload begins.
"""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, BinaryIO

from quaver.history.pickle_check import MAX_PAYLOAD, Malformed, check
from quaver.types import PlainDict

MAGIC = b"quaver history.snapshot\n"

PREFIX = struct.Struct("<I16s")
_PAYLOAD_START = re.compile(rb"\x80\x04\x95.{8}\}\(\x8c\x04kind", re.DOTALL)  # how every record begins: {"kind":
_PAYLOAD_START_SIZE = 19
_CHUNK = 2**16
# So many bytes that turn out to be no frame are hashed in one reading, or a forged file could ask for any number.
_MOST_IN_VAIN = 4 * MAX_PAYLOAD
# So many damaged places are passed over.
_MOST_GAPS = 1000


def pack(record: PlainDict) -> bytes:
    """The frame that holds `record`, which must consist of builtins alone and be no larger than can be read."""
    buffer = io.BytesIO()
    pickler = pickle.Pickler(buffer, protocol=4)
    pickler.fast = True  # no memo
    pickler.dump(record)
    payload = buffer.getvalue()
    check(payload)
    return frame(payload)


def frame(payload: bytes) -> bytes:
    """A payload with its length and digest in front."""
    return PREFIX.pack(len(payload), _digest(payload)) + payload


def unpack(payload: bytes) -> PlainDict:
    """The record in a payload. Nothing is executed: what is not a plain, bounded tree of builtins is refused unread."""
    check(payload)
    try:
        record = _Builtins(io.BytesIO(payload)).load()
    except Malformed:
        raise
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError, EOFError, pickle.PickleError) as error:
        raise Malformed(f"not a well-formed pickle ({error})") from error
    if type(record) is not dict:
        raise Malformed(f"it holds a {type(record).__name__} where a dict is expected")
    return record


def is_kind(payload: bytes, kind: str) -> bool:
    """Whether a payload says of itself, in its first bytes, that it is a record of this kind."""
    return payload[_PAYLOAD_START_SIZE:].startswith(b"\x8c" + bytes([len(kind)]) + kind.encode())


@dataclass(frozen=True, slots=True)
class Position:
    """How far a snapshot was read.

    Attributes:
        end: where the last whole frame ends; 0 before the magic line is complete.
        count: frames read so far; each place that had to be passed over counts as one.
        last: where the last whole frame begins.
        prefix: its length and digest, by which it is known again.
        gaps: places that were passed over: the number of the frame, and how many bytes.
    """

    end: int = 0
    count: int = 0
    last: int = 0
    prefix: bytes = b""
    gaps: tuple[tuple[int, int], ...] = ()


def is_unwritten(start: bytes) -> bool:
    """Whether the first bytes of a file, and one more, are those of a snapshot in which nothing was recorded yet."""
    # After a power cut the size may be on the disk without the data.
    return MAGIC.startswith(start) or start == bytes(len(MAGIC))


class FrameReader:
    """Iterates over the payloads of the whole frames of a snapshot, and passes over what is damaged between them.

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
        self._in_vain = _MOST_IN_VAIN

    def magic(self) -> bytes:
        """The first bytes of the file, `MAGIC` if it is a snapshot."""
        return self._start(len(MAGIC))

    def unwritten(self) -> bool:
        """Whether nothing was recorded in the file, not even the whole magic line."""
        return is_unwritten(self._start(len(MAGIC) + 1))

    def _start(self, size: int) -> bytes:
        self._stream.seek(0)
        return self._stream.read(min(size, self.size))

    def continues(self) -> bool:
        """Whether the file still holds, where it was, the last frame that was read before."""
        self._stream.seek(self.position.last)
        return self.size >= self.position.end and self._stream.read(len(self.position.prefix)) == self.position.prefix

    def __iter__(self) -> Iterator[bytes]:
        self.position = replace(self.position, end=max(self.position.end, len(MAGIC)))
        while True:
            at = self.position
            start, found = at.end, self._whole(at.end)
            if found is None:
                start, found = self._next_whole(at.end)
            if found is None:
                break
            count, gaps = at.count + 1, at.gaps
            if start != at.end:
                count, gaps = count + 1, (*gaps, (count, start - at.end))
            prefix, payload = found
            self.position = Position(start + len(prefix) + len(payload), count, start, prefix, gaps)
            yield payload
        self.torn = self._is_torn()

    @property
    def lost(self) -> int:
        """How many bytes follow the last whole frame."""
        return max(0, self.size - self.position.end)

    def _whole(self, start: int) -> tuple[bytes, bytes] | None:
        """Prefix and payload of the frame that begins there, if it is one."""
        left = self.size - start - PREFIX.size
        if left < 0:
            return None
        self._stream.seek(start)
        prefix = self._stream.read(PREFIX.size)
        if len(prefix) < PREFIX.size:
            return None
        length, digest = PREFIX.unpack(prefix)
        if length > left or length > MAX_PAYLOAD or length > self._in_vain:
            return None
        payload = self._stream.read(length)
        if _digest(payload) == digest:
            return prefix, payload
        self._in_vain -= length
        return None

    def _next_whole(self, start: int) -> tuple[int, tuple[bytes, bytes] | None]:
        """The first whole frame after one that is not."""
        if len(self.position.gaps) >= _MOST_GAPS:
            return start, None
        if self.size - start >= PREFIX.size:
            self._stream.seek(start)
            after = start + PREFIX.size + int(PREFIX.unpack(self._stream.read(PREFIX.size))[0])
            if after < self.size and (found := self._whole(after)) is not None:
                return after, found
        for candidate in self._candidates(start + 1):
            if (found := self._whole(candidate)) is not None:
                return candidate, found
        return start, None

    def _candidates(self, start: int) -> Iterator[int]:
        """Where frames may begin, as far as one damaged frame reaches."""
        overlap = PREFIX.size + _PAYLOAD_START_SIZE
        last = min(self.size, start + MAX_PAYLOAD + 2 * overlap)
        while start + overlap <= last:
            self._stream.seek(start)
            chunk = self._stream.read(min(_CHUNK + overlap, last - start))
            for match in _PAYLOAD_START.finditer(chunk, PREFIX.size):
                yield start + match.start() - PREFIX.size
            start += max(1, len(chunk) - overlap + 1)

    def _is_torn(self) -> bool:
        if not 0 < self.lost <= PREFIX.size + MAX_PAYLOAD:
            return False
        self._stream.seek(self.position.end)
        tail = self._stream.read(self.lost)
        if not tail.strip(b"\0"):
            return True  # after a power cut the new size may be on disk without the data
        if len(_PAYLOAD_START.findall(tail)) > 1:
            return False  # a second frame begins in it: the first one's length is what got damaged
        if not tail[: PREFIX.size].strip(b"\0"):
            return True  # of the data only a later part is there
        return len(tail) < PREFIX.size or PREFIX.size + int(PREFIX.unpack_from(tail)[0]) >= len(tail)


class _Builtins(pickle.Unpickler):
    """Resolves nothing. The opcodes that would ask are refused before; this is the second lock on the door."""

    def find_class(self, module: str, name: str) -> Any:
        raise Malformed(f"it asks for {module}.{name}")

    def persistent_load(self, pid: Any) -> Any:
        raise Malformed("it asks for a persistent object")


def _digest(payload: bytes) -> bytes:
    return hashlib.blake2b(payload, digest_size=16).digest()
