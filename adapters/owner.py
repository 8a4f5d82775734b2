"""Marks in names of temporary files that say whose they are, so that those of a dead process can be removed."""

from __future__ import annotations

import functools
import hashlib
import os
import re
import secrets
import socket

# The machine, the process, and something that nobody else has.
_MARK = r"([0-9a-f]{8})-([0-9]{1,10})-[0-9a-z_]{8}"


def owner() -> str:
    """How a mark of this process begins."""
    return f"{_machine()}-{os.getpid()}-"


def new_mark() -> str:
    """A mark that nobody else has."""
    return owner() + secrets.token_hex(4)


def is_orphaned(name: str, before: str) -> bool:
    """Whether a name is `before` and a mark whose process is dead. Of other machines nobody can tell."""
    found = re.fullmatch(re.escape(before) + _MARK, name)
    return found is not None and found[1] == _machine() and not _is_alive(int(found[2]))


@functools.cache
def _machine() -> str:
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # it is there, and somebody else's
        return True
    return True
