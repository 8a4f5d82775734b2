"""Files that are there whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterable
from pathlib import Path

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)


def write_safely(path: Path, chunks: Iterable[bytes | memoryview]) -> None:
    """Write to a temporary name, then rename: a reader sees the old file or the whole new one.

    The temporary file is made as any new file is, so that the system sets its mode as the user's mask wants it.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with os.fdopen(os.open(temporary, _NEW, 0o666), "wb") as file:
            for chunk in chunks:
                file.write(chunk)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
