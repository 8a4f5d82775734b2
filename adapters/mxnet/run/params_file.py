"""MXNet's file of parameters, written piece by piece. (`mxnet.nd.save` can write to disk alone.)

An array of type uint8 under the name `symbol` holds the graph, so that one file is a whole model.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

_LIST, _ARRAY = 0x112, 0xF993FAC9
_DENSE, _CPU = 0, 1
_KINDS = ("float32", "float64", "float16", "uint8", "int32", "int8", "int64", "bool")


def file_chunks(arrays: Mapping[str, Any]) -> Iterator[bytes | memoryview]:
    """The bytes of a file that holds these arrays, in this order."""
    yield struct.pack("<QQQ", _LIST, 0, len(arrays))
    for array in arrays.values():
        values = np.ascontiguousarray(array.asnumpy() if hasattr(array, "asnumpy") else array)
        yield _header(values)
        yield values.reshape(-1).view(np.uint8).data
    yield struct.pack("<Q", len(arrays))
    for name in arrays:
        text = name.encode()
        yield struct.pack("<Q", len(text)) + text


def file_size(arrays: Mapping[str, Any]) -> int:
    """How long that file is."""
    size = 32
    for name, array in arrays.items():
        size += len(_header(array)) + math.prod(array.shape) * np.dtype(array.dtype).itemsize + 8 + len(name.encode())
    return size


def _header(array: NDArray[Any] | Any) -> bytes:
    shape = struct.pack(f"<i{len(array.shape)}q", len(array.shape), *array.shape)
    kind = _KINDS.index(np.dtype(array.dtype).name)
    return struct.pack("<Ii", _ARRAY, _DENSE) + shape + struct.pack("<iii", _CPU, 0, kind)
