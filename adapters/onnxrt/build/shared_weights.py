"""One weight file for all processes of a machine that work on the same model: what is there is not written again.

The file only grows, so that sessions which have mapped it are not disturbed. An index beside it tells what lies where,
by digest; whoever writes holds a lock, and the index is written last, so that a process may be killed at any moment.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import BinaryIO

from quaver.files import locks

_PAGE = 4096


def align(offset: int) -> int:
    """The next place in a file where a tensor may begin: a page of its own can be mapped as it is."""
    return -(-offset // _PAGE) * _PAGE


def append(file: BinaryIO, data: memoryview) -> int:
    """Write data at the end of a weight file; where it begins."""
    offset = align(file.seek(0, os.SEEK_END))
    file.seek(offset)
    file.write(data)
    file.flush()
    return offset


NAME, INDEX = "shared-weights.bin", "shared-weights.index"


class SharedFile:
    """The file in a folder, made by whoever comes first.

    Attributes:
        path: of the weights.
        file: the weights, open.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        self._index = folder / INDEX
        self.file: BinaryIO = os.fdopen(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600), "r+b")
        self._offsets: dict[str, int] = {}
        self._read = 0

    def place(self, data: memoryview) -> int:
        """Where these bytes lie, written there if they were not."""
        digest = hashlib.sha256(data).hexdigest()
        if digest not in self._offsets:
            with locks.locked(self.file):
                self._look()
                if digest not in self._offsets:
                    offset = append(self.file, data)
                    self._record_type(f"{digest} {offset}\n")
                    self._offsets[digest] = offset
        return self._offsets[digest]

    def _look(self) -> None:
        """Read what others have written since."""
        if not self._index.exists():
            return
        with open(self._index) as file:
            file.seek(self._read)
            for line in file.readlines():
                digest, _, offset = line.rstrip("\n").partition(" ")
                if line.endswith("\n") and len(digest) == 64 and offset.isdigit():
                    self._offsets[digest] = int(offset)
            self._read = file.tell()

    def _record_type(self, line: str) -> None:
        handle = os.open(self._index, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            # What a killed process has left of its line ends here.
            os.write(handle, f"\n{line}".encode())
        finally:
            os.close(handle)
