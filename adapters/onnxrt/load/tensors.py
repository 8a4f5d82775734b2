"""Tensors of a model file as arrays. What a tensor declares is checked before memory is used for it."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import onnx
from onnx import SparseTensorProto, TensorProto

from quaver.errors import ModelError
from quaver.types import Array

# numpy cannot hold more elements, nor more bytes, whatever the memory.
_MAX_ELEMENTS = 2**62
# Judgement: a dense copy of a sparse constant may be 1000 times as large as its values and indices, or 16 MB. It keeps
# a small hostile file from filling the memory.
_SPARSE_TIMES, _SPARSE_FREE = 1000, 16 * 2**20
# Bits of packed types. Several values share a byte, so they cannot be mapped.
_PACKED = {
    TensorProto.DataType.Value(name): bits
    for name, bits in (("INT4", 4), ("UINT4", 4), ("FLOAT4E2M1", 4), ("INT2", 2), ("UINT2", 2))
    if name in TensorProto.DataType.keys()  # noqa: SIM118 - a protobuf enum, not a dict
}


# Constants of up to this many elements may be shapes, axes or scales, which shape inference reads. Larger ones take
# part with their type and shape alone. Judgement: no model has shapes or axes of more elements.
SHAPE_ELEMENTS = 256


def elements(tensor: TensorProto | SparseTensorProto, name: str) -> int:
    """Return how many elements a tensor declares."""
    dims = list(tensor.dims)
    if any(dim < 0 for dim in dims):
        raise ModelError(f"the constant {name!r} has the shape {_shape_text(dims)}: no dimension can be below 0")
    count = int(math.prod(dims))
    if count > _MAX_ELEMENTS:
        raise ModelError(f"the constant {name!r} has the shape {_shape_text(dims)}, of more elements than there can be")
    return count


def dtype_of(tensor: TensorProto) -> np.dtype[np.generic]:
    """Return the element type of a tensor."""
    try:
        return np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type))
    except Exception:
        raise ModelError(f"the constant {tensor.name!r} is of the unknown type {tensor.data_type}") from None


def to_array(tensor: TensorProto, folder: Path) -> Array:
    """Return a tensor as an array. External data is mapped, not read, so that its size does not matter."""
    count = elements(tensor, tensor.name)
    if tensor.data_location == TensorProto.EXTERNAL:
        return _mapped(tensor, folder)
    dtype_of(tensor)
    try:
        bits = _PACKED.get(tensor.data_type)
        if bits is not None and tensor.raw_data and len(tensor.raw_data) != -(-count * bits // 8):
            raise ValueError(f"there are {len(tensor.raw_data)} bytes")
        return onnx.numpy_helper.to_array(tensor)
    except Exception as error:
        shape = _shape_text(list(tensor.dims))
        raise ModelError(
            f"the constant {tensor.name!r} of shape {shape} does not hold what it says: {error}"
        ) from error


def to_dense(tensor: SparseTensorProto, folder: Path) -> Array:
    """Return a sparse constant as a dense array. Its indices are flat, or one row for each value."""
    name = tensor.values.name
    values, indices = to_array(tensor.values, folder), to_array(tensor.indices, folder)
    if values.dtype.hasobject or values.ndim != 1 or indices.dtype != np.int64 or len(indices) != len(values):
        raise ModelError(f"the sparse constant {name!r} needs a row of numbers and as many int64 indices")
    size = elements(tensor, name) * values.dtype.itemsize
    if size > max(_SPARSE_FREE, _SPARSE_TIMES * (values.nbytes + indices.nbytes)):
        raise ModelError(
            f"the sparse constant {name!r} of {len(values)} value(s) has the shape {_shape_text(list(tensor.dims))}: "
            f"written out it would take {size:,} bytes"
        )
    dense = np.zeros(tuple(tensor.dims), values.dtype)
    try:
        at = np.unravel_index(indices, dense.shape) if indices.ndim == 1 else tuple(indices.T)
        if indices.size and int(indices.min()) < 0:
            raise IndexError("an index is below 0")
        dense[at] = values
    except (IndexError, ValueError) as error:
        raise ModelError(f"the indices of the sparse constant {name!r} do not fit its shape: {error}") from error
    return dense


def _mapped(tensor: TensorProto, folder: Path) -> Array:
    dtype = dtype_of(tensor)
    if dtype.hasobject or tensor.data_type in _PACKED:
        kind = TensorProto.DataType.Name(tensor.data_type)
        raise ModelError(f"the external data of {tensor.name!r} is of type {kind}: only plain numbers can lie outside")
    entry = {item.key: item.value for item in tensor.external_data}
    shape = tuple(tensor.dims)
    size = math.prod(shape) * dtype.itemsize
    offset = _number(entry.get("offset", "0"), "offset", tensor.name)
    length = _number(entry.get("length", str(size)), "length", tensor.name)
    if length != size:
        raise ModelError(
            f"the external data of {tensor.name!r} is declared with {length} bytes; its shape "
            f"{_shape_text(list(shape))} and type {dtype} need {size}"
        )
    path = _path_inside(folder, entry.get("location", ""), tensor.name)
    subject = f"the external data of {tensor.name!r}, {str(path)[:200]!r},"
    try:
        size_on_disk = path.stat().st_size if path.is_file() else None
        if size_on_disk is None or size_on_disk < offset + size:
            state = "is missing" if size_on_disk is None else f"is too short ({size_on_disk} bytes)"
            raise ModelError(f"{subject} {state}; keep it beside the model file")
        return np.memmap(path, dtype, "r", offset, shape) if size else np.zeros(shape, dtype)
    except OSError as error:
        raise ModelError(f"{subject} cannot be read: {error.strerror}") from error


def _number(text: str, what: str, name: str) -> int:
    """Parse a number of bytes: digits alone."""
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        raise ModelError(f"the {what} of the external data of {name!r} is {text[:40]!r}, and must be a number of bytes")
    return int(text)


def _path_inside(folder: Path, location: str, name: str) -> Path:
    subject = f"the external data of {name!r} is declared at {location[:80]!r}"
    try:
        path = (folder / location).resolve()
        inside = bool(location) and path.is_relative_to(folder.resolve())
    except (OSError, ValueError, RuntimeError) as error:  # a NUL byte, a name that is too long, or a cycle of links
        raise ModelError(f"{subject}, which is not a path") from error
    if not inside:
        raise ModelError(f"{subject}, outside the model's folder")
    return path


def _shape_text(dims: list[int]) -> str:
    return str(dims) if len(dims) <= 8 else f"[{', '.join(map(str, dims[:8]))}, ...]"
