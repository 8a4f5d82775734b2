"""Want of space says nothing about a configuration: it is not recorded as failed, and asked for again later."""

from __future__ import annotations

import errno
import os

from quaver.engine.scoring.failures import text_of

_FULL = (errno.ENOSPC, errno.EDQUOT)
_SAID = tuple(os.strerror(number) for number in _FULL)


def want_of_space(error: BaseException) -> bool:
    """Whether an error, or one that it came from, is that a disk is full; frameworks say it in words."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, OSError) and one.errno in _FULL:
            return True
        if any(words in text_of(one) for words in _SAID):
            return True
        waiting += [one.__cause__, one.__context__]
    return False
