"""What a pickle may do, and how much of it: looked at byte by byte before any of it is loaded.

Bounds come before use. Whatever passes is a plain tree of builtins whose size in memory follows from these numbers:
dictionaries with text or small ints as keys (which cannot be made to collide), no memo, no global, no deep nesting.
"""

from __future__ import annotations

# Of one frame. Far more than the calibration of a large model, and small enough to be held several times.
MAX_PAYLOAD = 64 * 2**20
# Steps of the unpickler in one frame: each value is one, and takes a hundred bytes at most besides its own.
MAX_OPCODES = 1_000_000
# Bytes of text in one frame: a text that is not ASCII may take four times as much in memory.
MAX_TEXT = 16 * 2**20
# Bytes of one int.
MAX_INT = 129
# Keys of a dict are text. A few may be ints of 32 bits.
MAX_INT_KEYS = 4096
MAX_DEPTH = 64

# What lies on the unpickler's stack: what may be a key is below 0; else four times the height, and which container.
_TEXT, _SMALL_INT, _ATOM = -2, -1, 0
_LIST, _DICT, _TUPLE = 1, 2, 3
_ONE_HIGHER = 4

# Opcode -> what it puts on the stack, and how many bytes of argument follow.
_FIXED = {
    ord("N"): (_ATOM, 0),
    0x88: (_ATOM, 0),  # True
    0x89: (_ATOM, 0),  # False
    ord("K"): (_SMALL_INT, 1),
    ord("M"): (_SMALL_INT, 2),
    ord("J"): (_SMALL_INT, 4),
    ord("G"): (_ATOM, 8),
    ord("]"): (_ONE_HIGHER | _LIST, 0),
    ord("}"): (_ONE_HIGHER | _DICT, 0),
    ord(")"): (_ONE_HIGHER | _TUPLE, 0),
}
# Opcode -> the same, with the length of the argument in so many bytes before it.
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


class Malformed(ValueError):
    """What is wrong with one frame. Whoever knows the file turns it into a `HistoryError`."""


def check(payload: bytes) -> None:
    """Walk a pickle without executing it; `Malformed` if it is more, or other, than one bounded plain tree."""
    if len(payload) > MAX_PAYLOAD:
        raise Malformed(f"it has {len(payload):,} bytes, more than {MAX_PAYLOAD:,}")
    if not payload.startswith(_START):
        raise Malformed("its pickle protocol is not 4")
    try:
        end = _walk(payload)
    except IndexError:
        raise Malformed("not a well-formed pickle: it ends too soon, or takes more values than it made") from None
    if end != len(payload):
        raise Malformed("its pickle holds more or less than one value")


def _walk(payload: bytes) -> int:
    """Where the pickle ends. Raises IndexError if it is not complete."""
    stack: list[int] = []
    marks: list[int] = []
    at, text, int_keys = len(_START), 0, 0
    size = len(payload)
    frame = size  # where the unpickler's own frame ends; it skips what is left of that if a value goes on behind it
    for _ in range(MAX_OPCODES):
        if at >= frame:
            if at > frame:
                raise Malformed("not a well-formed pickle: a value goes on behind the end of its part")
            frame = size
        opcode = payload[at]
        at += 1
        if opcode == _SHORT_TEXT:  # the most frequent by far
            length = payload[at]
            at += 1 + length
            text += length
            stack.append(_TEXT)
        elif opcode in _FIXED:
            kind, width = _FIXED[opcode]
            at += width
            stack.append(kind)
        elif opcode in _COUNTED:
            kind, width = _COUNTED[opcode]
            length = int.from_bytes(payload[at : at + width], "little")
            at += width + length
            if at > size:
                raise Malformed(f"not a well-formed pickle: a value of {length:,} bytes is longer than the frame")
            text += length if kind == _TEXT else 0
            stack.append(kind)
        elif opcode == _MARK:
            marks.append(len(stack))
        elif opcode in (_SETITEM, _SETITEMS):
            start = marks.pop() if opcode == _SETITEMS else len(stack) - 2
            int_keys += _set_items(stack, start)
        elif opcode in (_APPEND, _APPENDS):
            start = marks.pop() if opcode == _APPENDS else len(stack) - 1
            _put_in(stack, start, _LIST)
        elif opcode in _TUPLES or opcode == _MARKED_TUPLE:
            start = marks.pop() if opcode == _MARKED_TUPLE else len(stack) - _TUPLES[opcode]
            _make_tuple(stack, start)
        elif opcode == _LONG1:
            if payload[at] > MAX_INT:
                raise Malformed(f"it holds an int of {8 * payload[at]} bits, more than 1024")
            at += 1 + payload[at]
            stack.append(_ATOM)
        elif opcode == _FRAME:
            at += 8
            inner = at + int.from_bytes(payload[at - 8 : at], "little")
            if inner > frame:
                raise Malformed("its pickle is longer than the frame")
            frame = inner
        elif opcode == _STOP:
            if len(stack) != 1 or marks:
                raise Malformed("its pickle holds more or less than one value")
            if text > MAX_TEXT or int_keys > MAX_INT_KEYS:
                raise Malformed(
                    f"it holds {text:,} bytes of text and {int_keys:,} ints as keys, more than {MAX_TEXT:,} and "
                    f"{MAX_INT_KEYS:,}"
                )
            return at
        else:
            raise Malformed(f"its pickle does more than hold data (opcode {opcode:#04x})")
    raise Malformed(f"its pickle has more than {MAX_OPCODES:,} steps")


def _set_items(stack: list[int], start: int) -> int:
    """Put keys and values into the dict below; how many of the keys are ints."""
    if start < 1 or start > len(stack) or (len(stack) - start) % 2:
        raise Malformed("its pickle takes more values than it made, or a key without a value")
    keys = stack[start::2]
    if keys and max(keys) >= _ATOM:
        raise Malformed("it holds a dict whose keys are not of type str, or ints of 32 bits")
    _put_in(stack, start, _DICT)
    return keys.count(_SMALL_INT)


def _put_in(stack: list[int], start: int, kind: int) -> None:
    """Put the values from `start` on into the container below them."""
    if start < 1 or start > len(stack):
        raise Malformed("its pickle takes more values than it made")
    highest = max(stack[start:], default=0)
    del stack[start:]
    if stack[-1] & 3 != kind or stack[-1] < 0:
        raise Malformed("its pickle puts values into what is no container for them")
    stack[-1] = _higher(max(stack[-1] - _ONE_HIGHER, highest), kind)


def _make_tuple(stack: list[int], start: int) -> None:
    if start < 0 or start > len(stack):
        raise Malformed("its pickle takes more values than it made")
    highest = max(stack[start:], default=0)
    del stack[start:]
    stack.append(_higher(highest, _TUPLE))


def _higher(inner: int, kind: int) -> int:
    """A container around a value that is so high."""
    height = (max(inner, 0) >> 2) + 1
    if height > MAX_DEPTH:
        raise Malformed(f"its data is nested more than {MAX_DEPTH} deep")
    return height << 2 | kind
