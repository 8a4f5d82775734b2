"""Reads the tensors of a `.pth` file of the old kind without torch, and without running any code in it."""

from __future__ import annotations

import io
import pickle
import struct
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.models.bench import Array

_MAGIC = 0x1950A86A20F9469CFC6C
_TYPES = {"FloatStorage": np.dtype("<f4"), "LongStorage": np.dtype("<i8")}


class _Storage:
    """A run of numbers that tensors look at; its content comes at the end of the file."""

    def __init__(self, kind: np.dtype[Any], count: int) -> None:
        self.values = np.zeros(count, kind)


class _Tensor:
    """A view of a storage, to be read when its content is there."""

    def __init__(self, storage: _Storage, offset: int, size: tuple[int, ...], stride: tuple[int, ...], *_: Any) -> None:
        self._storage, self._offset, self._size, self._stride = storage, offset, size, stride

    def array(self) -> Array:
        """A copy of what it shows."""
        values = self._storage.values[self._offset :]
        steps = [step * values.itemsize for step in self._stride]
        return np.lib.stride_tricks.as_strided(values, self._size, steps).copy()


class _Unpickler(pickle.Unpickler):
    """Knows five names and refuses all others."""

    def __init__(self, file: io.BufferedIOBase) -> None:
        super().__init__(file)
        self.storages: dict[str, _Storage] = {}

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _Tensor
        if (module, name) == ("torch._utils", "_rebuild_parameter"):
            return lambda tensor, *_: tensor
        if module == "torch" and name in _TYPES:
            return _TYPES[name]
        raise pickle.UnpicklingError(f"a file of weights has no use for {module}.{name}")

    def persistent_load(self, reference: Any) -> _Storage:
        _, kind, key, _, count, _ = reference
        return self.storages.setdefault(key, _Storage(kind, count))


def read_tensors(path: Path) -> dict[str, Array]:
    """All tensors of a state dict by name."""
    with open(path, "rb") as file:
        magic, _, _ = (_Unpickler(file).load() for _ in range(3))
        if magic != _MAGIC:
            raise ValueError(f"{path} is not a .pth file of the old kind")
        unpickler = _Unpickler(file)
        tensors = unpickler.load()
        for key in _Unpickler(file).load():
            values = unpickler.storages[key].values
            (count,) = struct.unpack("<q", file.read(8))
            values[:] = np.frombuffer(file.read(count * values.itemsize), values.dtype)
    return {name: tensor.array() for name, tensor in tensors.items()}
