"""One weight file for all processes of a machine that tune the same model: each constant is written once.

The file only grows, so that sessions which have mapped it are not disturbed. An index beside it lists the offsets of
constants by digest. A writer holds a lock and writes the index last, so that a process may be killed at any moment.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import BinaryIO

from quaver.files import locks

_PAGE = 4096


def align(offset: int) -> int:
    """Return the next offset where a tensor may begin: on a page of its own, so that it can be mapped."""
    return -(-offset // _PAGE) * _PAGE


def append(file: BinaryIO, data: memoryview) -> int:
    """Write data at the end of a weight file, and return its offset."""
    offset = align(file.seek(0, os.SEEK_END))
    file.seek(offset)
    file.write(data)
    file.flush()
    return offset


NAME, INDEX = "shared-weights.bin", "shared-weights.index"


class SharedFile:
    """The shared weight file of a folder; the first process creates it.

    Attributes:
        path: of the weight file.
        file: the weight file, open.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        self._index = folder / INDEX
        self.file: BinaryIO = os.fdopen(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600), "r+b")
        self._offsets: dict[str, int] = {}
        self._index_offset = 0

    def place(self, data: memoryview) -> int:
        """Return the offset of these bytes; they are written if they are not in the file yet."""
        digest = hashlib.sha256(data).hexdigest()
        if digest not in self._offsets:
            with locks.locked(self.file):
                self._read_index()
                if digest not in self._offsets:
                    offset = append(self.file, data)
                    self._append_to_index(f"{digest} {offset}\n")
                    self._offsets[digest] = offset
        return self._offsets[digest]

    def _read_index(self) -> None:
        """Read what other processes have added to the index."""
        if not self._index.exists():
            return
        with open(self._index) as file:
            file.seek(self._index_offset)
            for line in file.readlines():
                digest, _, offset = line.rstrip("\n").partition(" ")
                if line.endswith("\n") and len(digest) == 64 and offset.isdigit():
                    self._offsets[digest] = int(offset)
            self._index_offset = file.tell()

    def _append_to_index(self, line: str) -> None:
        handle = os.open(self._index, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            # The first newline ends an incomplete line of a killed process.
            os.write(handle, f"\n{line}".encode())
        finally:
            os.close(handle)
