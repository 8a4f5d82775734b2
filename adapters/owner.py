"""Marks in names of temporary files that say whose they are, so that those of a dead process can be removed."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import secrets
import socket
from collections.abc import Iterator

# The machine, the process, and something that nobody else has.
_MARK = r"(([0-9a-f]{8})-([0-9]{1,10})-[0-9a-z_]{8})"
_in_use: set[str] = set()


def owner() -> str:
    """How a mark of this process begins."""
    return f"{machine()}-{os.getpid()}-"


@contextlib.contextmanager
def marked() -> Iterator[str]:
    """A mark that nobody else has, for a while."""
    mark = owner() + secrets.token_hex(4)
    _in_use.add(mark)
    try:
        yield mark
    finally:
        _in_use.discard(mark)


def is_orphaned(name: str, before: str) -> bool:
    """Whether a name is `before` and a mark whose process is dead. Of other machines nobody can tell.

    A mark of this process that is not in use is a left-over, too: of a try that failed, or of a dead process that had
    the same number.
    """
    found = re.fullmatch(re.escape(before) + _MARK, name)
    if found is None or found[2] != machine():
        return False
    pid = int(found[3])
    return found[1] not in _in_use if pid == os.getpid() else not _is_alive(pid)


@functools.cache
def machine() -> str:
    """This machine, as a mark says it."""
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # it is there, and somebody else's
        return True
    return True
