"""Tensors written one behind the other, each where it can be mapped."""

from __future__ import annotations

import os
from typing import BinaryIO

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
