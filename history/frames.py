"""Convert bytes to frames and back: length, digest, pickle. This module knows nothing about trials.

A snapshot is a magic line followed by frames. A frame is a prefix, which holds the little-endian uint32 length and the
16-byte blake2b digest of the payload, and the payload: a protocol 4 pickle of one dict of builtins, "kind" first. It is
pickled without a memo, so it is a plain tree that shares no objects and cannot grow when it is read.

The magic line and the prefixes are pickle opcodes too: each pushes a constant and pops it again. A loop of
`pickle.load` over the file therefore yields the records. Files of schemas 1 and 2 have a plain text line and bare
prefixes; they are read as before, and continue in their own layout when they are resumed.

A frame with a wrong digest is skipped. Its length gives the start of the next frame; if no whole frame is there, the
reader searches for the bytes with which every payload begins.
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
from typing import BinaryIO, NoReturn

from quaver.history.pickle_check import MAX_PAYLOAD, MalformedRecord, check
from quaver.types import PlainDict

_NUMBERS = struct.Struct("<I16s")


@dataclass(frozen=True, slots=True)
class Layout:
    """The bytes around payloads in a snapshot.

    Attributes:
        magic: the first bytes of the file.
        before: what precedes length and digest in a prefix.
        after: what follows them.
    """

    magic: bytes
    before: bytes
    after: bytes

    @property
    def prefix_size(self) -> int:
        """The bytes of a frame before its payload."""
        return len(self.before) + _NUMBERS.size + len(self.after)

    def prefix(self, length: int, digest: bytes) -> bytes:
        """Return the prefix of a payload of that length and digest."""
        return self.before + _NUMBERS.pack(length, digest) + self.after

    def frame(self, payload: bytes) -> bytes:
        """Return a payload with its prefix."""
        return self.prefix(len(payload), _digest(payload)) + payload

    def numbers(self, prefix: bytes) -> tuple[int, bytes]:
        """Return the length and the digest in a whole prefix."""
        length, digest = _NUMBERS.unpack_from(prefix, len(self.before))
        return int(length), bytes(digest)

    def is_prefix(self, prefix: bytes) -> bool:
        """Return True if the bytes around length and digest are those of this layout."""
        return len(prefix) == self.prefix_size and prefix.startswith(self.before) and prefix.endswith(self.after)


_LINE = b"quaver history.snapshot\n"
# The layout of schemas 1 and 2.
PLAIN = Layout(_LINE, b"", b"")
# \x80\x04: protocol 4; \x8c and C push a text or bytes whose length is the next byte; 0 pops it.
PICKLED = Layout(b"\x80\x04\x8c" + bytes([len(_LINE)]) + _LINE + b"0", b"\x80\x04C" + bytes([_NUMBERS.size]), b"0")
LAYOUTS = (PICKLED, PLAIN)
MAGIC = PICKLED.magic
_PAYLOAD_START = re.compile(rb"\x80\x04\x95.{8}\}\(\x8c\x04kind", re.DOTALL)  # the start of every record: {"kind":
_PAYLOAD_START_SIZE = 19
# Bytes read at once while searching for a frame.
_CHUNK = 2**16
# Bytes hashed in one reading that turn out to be no frame. A forged file could otherwise ask for any number.
# Judgement: four damaged frames of the largest size.
_MAX_WASTED_BYTES = 4 * MAX_PAYLOAD
# Judgement: a file with more damaged places than this is not read any further.
_MAX_GAPS = 1000


def pack(record: PlainDict, layout: Layout = PICKLED) -> bytes:
    """Return the frame of a record, which must consist of builtins and fit the limits of `pickle_check`."""
    buffer = io.BytesIO()
    pickler = pickle.Pickler(buffer, protocol=4)
    pickler.fast = True  # no memo
    pickler.dump(record)
    payload = buffer.getvalue()
    check(payload)
    return layout.frame(payload)


def unpack(payload: bytes) -> PlainDict:
    """Return the record in a payload without executing anything.

    Raises:
        MalformedRecord: the payload is not a bounded tree of builtins. It is refused before it is loaded.
    """
    check(payload)
    try:
        record = _Builtins(io.BytesIO(payload)).load()
    except MalformedRecord:
        raise
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError, EOFError, pickle.PickleError) as error:
        raise MalformedRecord(f"not a well-formed pickle ({error})") from error
    if type(record) is not dict:
        raise MalformedRecord(f"it holds a {type(record).__name__} where a dict is expected")
    return record


def is_kind(payload: bytes, kind: str) -> bool:
    """Return True if the first bytes of a payload name this kind of record."""
    return payload[_PAYLOAD_START_SIZE:].startswith(b"\x8c" + bytes([len(kind)]) + kind.encode())


@dataclass(frozen=True, slots=True)
class Position:
    """The point up to which a snapshot was read.

    Attributes:
        end: where the last whole frame ends; 0 before the magic line is complete.
        count: the number of frames read so far; each damaged place counts as one.
        last: where the last whole frame begins.
        prefix: the prefix of that frame, whose length and digest identify it.
        gaps: the damaged places: the number of the frame, and the number of bytes.
    """

    end: int = 0
    count: int = 0
    last: int = 0
    prefix: bytes = b""
    gaps: tuple[tuple[int, int], ...] = ()


def is_unwritten(start: bytes) -> bool:
    """Return True if these first bytes belong to a snapshot in which nothing was recorded yet.

    `start` has one byte more than the longest magic line, if the file is that long.
    """
    # After a power cut, the size may be on disk without the data.
    return any(layout.magic.startswith(start) or start == bytes(len(layout.magic)) for layout in LAYOUTS)


class FrameReader:
    """Iterate over the payloads of the whole frames of a snapshot and skip damaged bytes between them.

    Args:
        stream: the file.
        position: where an earlier reader stopped.
        layout: the layout that the earlier reader found.

    Attributes:
        size: bytes in the file when reading began; bytes that a running writer adds later are ignored.
        layout: the layout of the file.
        position: how far it has read; it continues from where an earlier reader stopped.
        torn: True after the iteration if the remaining bytes look like one interrupted write.
    """

    def __init__(self, stream: BinaryIO, position: Position | None = None, layout: Layout | None = None) -> None:
        self._stream = stream
        self.size = stream.seek(0, os.SEEK_END)
        self.layout = layout or self._find_layout()
        self.position = position or Position()
        self.torn = False
        self._wasted_bytes_left = _MAX_WASTED_BYTES

    def has_magic(self) -> bool:
        """Return True if the file begins like a snapshot."""
        return self._start(len(self.layout.magic)) == self.layout.magic

    def is_unwritten(self) -> bool:
        """Return True if nothing was recorded in the file, not even the whole magic line."""
        return is_unwritten(self._start(len(MAGIC) + 1))

    def _find_layout(self) -> Layout:
        """Return the layout by the first bytes; if these are damaged, by whether prefixes are opcodes."""
        start = self._start(len(MAGIC))
        whole = [layout for layout in LAYOUTS if start.startswith(layout.magic)]
        if whole:
            return whole[0]
        return PICKLED if PICKLED.before in self._start(_CHUNK) else PLAIN

    def _start(self, size: int) -> bytes:
        self._stream.seek(0)
        return self._stream.read(min(size, self.size))

    def continues(self) -> bool:
        """Return True if the file still holds the last frame that was read before, at its place."""
        self._stream.seek(self.position.last)
        return self.size >= self.position.end and self._stream.read(len(self.position.prefix)) == self.position.prefix

    def __iter__(self) -> Iterator[bytes]:
        self.position = replace(self.position, end=max(self.position.end, len(self.layout.magic)))
        while True:
            at = self.position
            start, whole_frame = at.end, self._whole(at.end)
            if whole_frame is None:
                start, whole_frame = self._next_whole(at.end)
            if whole_frame is None:
                break
            count, gaps = at.count + 1, at.gaps
            if start != at.end:
                count, gaps = count + 1, (*gaps, (count, start - at.end))
            prefix, payload = whole_frame
            self.position = Position(start + len(prefix) + len(payload), count, start, prefix, gaps)
            yield payload
        self.torn = self._is_torn()

    @property
    def lost(self) -> int:
        """The number of bytes after the last whole frame."""
        return max(0, self.size - self.position.end)

    def _whole(self, start: int) -> tuple[bytes, bytes] | None:
        """Return prefix and payload of the frame that begins at `start`; None if there is none."""
        left = self.size - start - self.layout.prefix_size
        if left < 0:
            return None
        self._stream.seek(start)
        prefix = self._stream.read(self.layout.prefix_size)
        if not self.layout.is_prefix(prefix):
            return None
        length, digest = self.layout.numbers(prefix)
        if length > left or length > MAX_PAYLOAD or length > self._wasted_bytes_left:
            return None
        payload = self._stream.read(length)
        if _digest(payload) == digest:
            return prefix, payload
        self._wasted_bytes_left -= length
        return None

    def _next_whole(self, start: int) -> tuple[int, tuple[bytes, bytes] | None]:
        """Return the first whole frame after a damaged one, with its start."""
        if len(self.position.gaps) >= _MAX_GAPS:
            return start, None
        prefix_size = self.layout.prefix_size
        if self.size - start >= prefix_size:
            self._stream.seek(start)
            after = start + prefix_size + self.layout.numbers(self._stream.read(prefix_size))[0]
            if after < self.size and (whole_frame := self._whole(after)) is not None:
                return after, whole_frame
        for candidate in self._candidates(start + 1):
            if (whole_frame := self._whole(candidate)) is not None:
                return candidate, whole_frame
        return start, None

    def _candidates(self, start: int) -> Iterator[int]:
        """Yield the offsets where frames may begin, as far as one damaged frame can reach."""
        prefix_size = self.layout.prefix_size
        overlap = prefix_size + _PAYLOAD_START_SIZE
        last = min(self.size, start + MAX_PAYLOAD + 2 * overlap)
        while start + overlap <= last:
            self._stream.seek(start)
            chunk = self._stream.read(min(_CHUNK + overlap, last - start))
            for match in _PAYLOAD_START.finditer(chunk, prefix_size):
                yield start + match.start() - prefix_size
            start += max(1, len(chunk) - overlap + 1)

    def _is_torn(self) -> bool:
        prefix_size = self.layout.prefix_size
        if not 0 < self.lost <= prefix_size + MAX_PAYLOAD:
            return False
        self._stream.seek(self.position.end)
        tail = self._stream.read(self.lost)
        if not tail.strip(b"\0"):
            return True  # after a power cut, the new size may be on disk without the data
        if len(_PAYLOAD_START.findall(tail)) > 1:
            return False  # a second frame begins here, so the length of the first one is damaged
        prefix = tail[:prefix_size]
        if len(prefix) < prefix_size or not prefix.strip(b"\0"):
            return True  # it was cut, or only a later part of the data reached the disk
        return self.layout.is_prefix(prefix) and prefix_size + self.layout.numbers(prefix)[0] >= len(tail)


class _Builtins(pickle.Unpickler):
    """Unpickler that resolves nothing. `check` refuses such opcodes already; this is a second barrier."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise MalformedRecord(f"it asks for {module}.{name}")

    def persistent_load(self, object_id: object) -> NoReturn:
        raise MalformedRecord("it asks for a persistent object")


def _digest(payload: bytes) -> bytes:
    return hashlib.blake2b(payload, digest_size=16).digest()
