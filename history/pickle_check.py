"""Check a pickle byte by byte before any of it is loaded.

A pickle that passes is a plain tree of builtins. Its size in memory follows from the limits below: keys of dicts are
text or small ints (which cannot be made to collide), and there is no memo, no global and no deep nesting.

The limits are judgement: a multiple of what the largest models of the benchmarks record, and small enough that a forged
file cannot exhaust the memory.
"""

from __future__ import annotations

# Bytes of one frame: far more than the calibration of a large model, and few enough to be held several times.
MAX_PAYLOAD = 64 * 2**20
# Steps of the unpickler in one frame. Each value is one step and takes at most 100 bytes besides its own size.
MAX_OPCODES = 1_000_000
# Bytes of text in one frame. Text that is not ASCII may take four times as much in memory.
MAX_TEXT = 16 * 2**20
# Bytes of one int: 1024 bits and a sign.
MAX_INT = 129
# Keys of a dict are text; this many in a frame may be ints of 32 bits.
MAX_INT_KEYS = 4096
# Nesting of containers.
MAX_DEPTH = 64

# A value on the unpickler's stack. Possible keys are below 0; other values are 4 x their nesting + the container type.
_TEXT, _SMALL_INT, _ATOM = -2, -1, 0
_LIST, _DICT, _TUPLE = 1, 2, 3
_NESTED = 4

# Opcode -> the value it puts on the stack, and the number of argument bytes.
_FIXED = {
    ord("N"): (_ATOM, 0),
    0x88: (_ATOM, 0),  # True
    0x89: (_ATOM, 0),  # False
    ord("K"): (_SMALL_INT, 1),
    ord("M"): (_SMALL_INT, 2),
    ord("J"): (_SMALL_INT, 4),
    ord("G"): (_ATOM, 8),
    ord("]"): (_NESTED | _LIST, 0),
    ord("}"): (_NESTED | _DICT, 0),
    ord(")"): (_NESTED | _TUPLE, 0),
}
# Opcode -> the value it puts on the stack, and the number of bytes that hold the length of its argument.
_COUNTED = {
    ord("X"): (_TEXT, 4),
    ord("C"): (_ATOM, 1),
    ord("B"): (_ATOM, 4),
}
_SHORT_TEXT = 0x8C  # with its length in one byte
_TUPLES = {0x85: 1, 0x86: 2, 0x87: 3}
_MARK, _MARKED_TUPLE = ord("("), ord("t")
_APPEND, _APPENDS, _SETITEM, _SETITEMS = b"aesu"
_LONG1, _FRAME, _STOP = 0x8A, 0x95, ord(".")
_START = b"\x80\x04"  # protocol 4


class MalformedRecord(ValueError):
    """An invalid record. The caller that knows the file turns it into a `HistoryError`."""


def check(payload: bytes) -> None:
    """Check a pickle without executing it.

    Raises:
        MalformedRecord: the pickle is anything but one bounded plain tree.
    """
    if len(payload) > MAX_PAYLOAD:
        raise MalformedRecord(f"it has {len(payload):,} bytes, more than {MAX_PAYLOAD:,}")
    if not payload.startswith(_START):
        raise MalformedRecord("its pickle protocol is not 4")
    try:
        end = _walk(payload)
    except IndexError:
        raise MalformedRecord("not a well-formed pickle: it ends too soon, or takes more values than it made") from None
    if end != len(payload):
        raise MalformedRecord("its pickle holds more or less than one value")


def _walk(payload: bytes) -> int:
    """Return the end of the pickle. Raises IndexError if it is incomplete."""
    state = _Scan(payload)
    for _ in range(MAX_OPCODES):
        opcode = state.next_opcode()
        if opcode == _STOP:
            return state.stop()
        # The first two branches are by far the most frequent.
        if opcode == _SHORT_TEXT:
            state.short_text()
        elif opcode in _FIXED:
            kind, width = _FIXED[opcode]
            state.at += width
            state.stack.append(kind)
        else:
            state.apply(opcode)
    raise MalformedRecord(f"its pickle has more than {MAX_OPCODES:,} steps")


class _Scan:
    """The state of the unpickler as far as the check needs it.

    Attributes:
        at: the offset of the next opcode.
        stack: the kinds of the values on the unpickler's stack.
        marks: heights of the stack at open marks.
        frame_end: where the unpickler's own frame ends. It would skip the rest of a value that continues beyond it.
        text: bytes of text so far.
        int_keys: ints as keys so far.
    """

    __slots__ = ("_payload", "at", "frame_end", "int_keys", "marks", "stack", "text")

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self.at, self.frame_end = len(_START), len(payload)
        self.stack: list[int] = []
        self.marks: list[int] = []
        self.text = self.int_keys = 0

    def next_opcode(self) -> int:
        """Return the next opcode and step over it."""
        if self.at >= self.frame_end:
            if self.at > self.frame_end:
                raise MalformedRecord("not a well-formed pickle: a value continues beyond the end of its part")
            self.frame_end = len(self._payload)
        self.at += 1
        return self._payload[self.at - 1]

    def short_text(self) -> None:
        """Read a text whose length is one byte."""
        length = self._payload[self.at]
        self.at += 1 + length
        self.text += length
        self.stack.append(_TEXT)

    def apply(self, opcode: int) -> None:
        """Apply one of the less frequent opcodes."""
        if opcode in _COUNTED:
            self._counted(*_COUNTED[opcode])
        elif opcode == _MARK:
            self.marks.append(len(self.stack))
        elif opcode in (_SETITEM, _SETITEMS):
            start = self.marks.pop() if opcode == _SETITEMS else len(self.stack) - 2
            self.int_keys += _set_items(self.stack, start)
        elif opcode in (_APPEND, _APPENDS):
            start = self.marks.pop() if opcode == _APPENDS else len(self.stack) - 1
            _put_in(self.stack, start, _LIST)
        elif opcode in _TUPLES or opcode == _MARKED_TUPLE:
            start = self.marks.pop() if opcode == _MARKED_TUPLE else len(self.stack) - _TUPLES[opcode]
            _make_tuple(self.stack, start)
        elif opcode == _LONG1:
            self._long_int()
        elif opcode == _FRAME:
            self._frame()
        else:
            raise MalformedRecord(f"its pickle does more than hold data (opcode {opcode:#04x})")

    def _counted(self, kind: int, width: int) -> None:
        """Read a value whose length is `width` bytes."""
        length = int.from_bytes(self._payload[self.at : self.at + width], "little")
        self.at += width + length
        if self.at > len(self._payload):
            raise MalformedRecord(f"not a well-formed pickle: a value of {length:,} bytes is longer than the frame")
        self.text += length if kind == _TEXT else 0
        self.stack.append(kind)

    def _long_int(self) -> None:
        size = self._payload[self.at]
        if size > MAX_INT:
            raise MalformedRecord(f"it holds an int of {8 * size} bits, more than 1024")
        self.at += 1 + size
        self.stack.append(_ATOM)

    def _frame(self) -> None:
        """Enter a frame of the unpickler, which must end within the one around it."""
        self.at += 8
        end = self.at + int.from_bytes(self._payload[self.at - 8 : self.at], "little")
        if end > self.frame_end:
            raise MalformedRecord("its pickle is longer than the frame")
        self.frame_end = end

    def stop(self) -> int:
        """Return the end of the pickle, after a last check."""
        if len(self.stack) != 1 or self.marks:
            raise MalformedRecord("its pickle holds more or less than one value")
        if self.text > MAX_TEXT or self.int_keys > MAX_INT_KEYS:
            raise MalformedRecord(
                f"it holds {self.text:,} bytes of text and {self.int_keys:,} ints as keys, more than {MAX_TEXT:,} and "
                f"{MAX_INT_KEYS:,}"
            )
        return self.at


def _set_items(stack: list[int], start: int) -> int:
    """Put keys and values into the dict below; return how many of the keys are ints."""
    if start < 1 or start > len(stack) or (len(stack) - start) % 2:
        raise MalformedRecord("its pickle takes more values than it made, or a key without a value")
    keys = stack[start::2]
    if keys and max(keys) >= _ATOM:
        raise MalformedRecord("it holds a dict whose keys are not of type str, or ints of 32 bits")
    _put_in(stack, start, _DICT)
    return keys.count(_SMALL_INT)


def _put_in(stack: list[int], start: int, kind: int) -> None:
    """Put the values from `start` on into the container below them."""
    if start < 1 or start > len(stack):
        raise MalformedRecord("its pickle takes more values than it made")
    highest = max(stack[start:], default=0)
    del stack[start:]
    if stack[-1] & 3 != kind or stack[-1] < 0:
        raise MalformedRecord("its pickle puts values into something that is not a container for them")
    stack[-1] = _container_around(max(stack[-1] - _NESTED, highest), kind)


def _make_tuple(stack: list[int], start: int) -> None:
    if start < 0 or start > len(stack):
        raise MalformedRecord("its pickle takes more values than it made")
    highest = max(stack[start:], default=0)
    del stack[start:]
    stack.append(_container_around(highest, _TUPLE))


def _container_around(inner: int, kind: int) -> int:
    """Return a container around a value of this nesting."""
    height = (max(inner, 0) >> 2) + 1
    if height > MAX_DEPTH:
        raise MalformedRecord(f"its data is nested more than {MAX_DEPTH} deep")
    return height << 2 | kind
