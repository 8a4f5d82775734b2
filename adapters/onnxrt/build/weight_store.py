"""The weight store: every constant once, the float ones as given, the int8 ones quantized on first use.

Large constants lie in one flat file. ONNX Runtime maps it, so that all sessions of all trials (and processes) share
one copy of the weights.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import re
import secrets
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

import numpy as np
import onnx

from quaver.adapters.onnxrt.build import protobuf
from quaver.adapters.onnxrt.build.affine import (
    Float,
    activation_parameters,
    bias_steps,
    quantize_table,
    quantize_weight,
    scale_for_bias,
    weight_scale,
)
from quaver.adapters.onnxrt.build.saturation import Reduction
from quaver.adapters.onnxrt.build.shared_weights import append
from quaver.affine import QuantizationParameters
from quaver.errors import BuildError, ModelError
from quaver.files import locks
from quaver.files.temporary import temporary_folder
from quaver.types import Array

# Judgement: constants up to 1 KB travel inside the model, because the optimiser must see shapes and scales.
INLINE_BYTES = 1024
# The name of a weight file and its first bytes; they keep other files from being deleted as orphans.
NAME = re.compile(r"quaver-weights-[0-9a-f]{16}\.cache")
MAGIC = b"quaver: weights of a run, removed at its end\n"

if TYPE_CHECKING:
    from quaver.adapters.onnxrt.build.shared_weights import SharedFile


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A large constant in the flat file."""

    name: str
    data_type: int
    dims: tuple[int, ...]
    offset: int
    nbytes: int

    def external(self, location: str) -> bytes:
        """Return the initializer entry that points into the file."""
        return protobuf.external_tensor(self.name, self.dims, self.data_type, location, self.offset, self.nbytes)

    def head(self) -> bytes:
        """Return the initializer entry without its data, which must follow at once."""
        return protobuf.initializer_head(self.name, self.dims, self.data_type, self.nbytes)


# An entry of a graph: its bytes, or where they lie.
Entry = bytes | StoredTensor


def claim(handle: int, wait: bool = False) -> bool:
    """Lock an open weight file for as long as it is open; return False if that is not possible."""
    try:
        if not wait:
            return locks.try_acquire(handle)
        locks.acquire(handle)
    except OSError:  # a file system without locks
        return False
    return True


def remove_orphans(folder: Path) -> None:
    """Delete weight files of killed processes, whose lock is free."""
    for path in folder.glob("quaver-weights-*.cache"):
        if NAME.fullmatch(path.name) and not path.is_symlink():
            with contextlib.suppress(OSError), open(path, "rb") as file:
                # An empty file is from a process that was killed before it wrote the first bytes.
                if claim(file.fileno()) and file.read(len(MAGIC)) in (MAGIC, b""):
                    path.unlink()


def new_file(folder: Path) -> tuple[Path, BinaryIO]:
    """Create a weight file and lock it before its first bytes appear, so that no process takes it for an orphan.

    Each store has a file of its own: writing into one that another store's sessions have mapped would kill them.
    """
    path = folder / f"quaver-weights-{secrets.token_hex(8)}.cache"
    try:
        file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), "w+b")
        claim(file.fileno(), wait=True)  # another process may be looking for orphans
        file.write(MAGIC)
        file.flush()
    except OSError as error:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
        raise BuildError(f"cannot write the weight file into {str(folder)!r}: {error.strerror}") from error
    return path, file


class WeightParts(NamedTuple):
    """A quantized weight as parts of a graph.

    Attributes:
        node: the node that dequantizes it.
        entries: its constants; the first one holds the integers.
        name: the name of the dequantized tensor.
        integers: the name of the integers.
    """

    node: bytes
    entries: tuple[Entry, ...]
    name: str
    integers: str


class WeightStore:
    """The constants of one model, in every form that trials have used so far."""

    def __init__(self, constants: dict[str, Array], folder: Path | None, mark: str, shared: bool = False) -> None:
        self._constants = constants
        # Without a folder the file lies in a temporary one, which is removed with the last model that needs it.
        stack = contextlib.ExitStack()
        self._remove_folder = weakref.finalize(self, stack.close)
        folder = stack.enter_context(temporary_folder()) if folder is None else Path(folder)
        self._mark = mark
        self._entries: dict[str, Entry] = {}
        self._weights: dict[tuple[object, ...], WeightParts] = {}
        self._scales: dict[tuple[str, int | None, Reduction | None], Float] = {}
        self._tables: dict[str, QuantizationParameters] = {}
        self._mapped: memoryview | None = None  # mapped again once the file has grown
        self._shared: SharedFile | None = None
        if shared:
            from quaver.adapters.onnxrt.build.shared_weights import SharedFile

            self._shared = SharedFile(folder)
            self._path, self._file = self._shared.path, self._shared.file
        else:
            remove_orphans(folder)
            self._path, self._file = new_file(folder)
        stack.callback(self._file.close)  # a store that is never closed closes its file before its folder is removed
        # A model may be hashed in another thread while its store is closed. The number of a closed file soon belongs to
        # another file, and reading that one would kill the process. So this duplicate stays open.
        self._readable = os.dup(self._file.fileno())
        weakref.finalize(self, os.close, self._readable)

    @property
    def path(self) -> Path:
        """The path of the flat file."""
        return self._path

    def close(self) -> None:
        """Remove the file. Sessions that mapped it keep working."""
        self._file.close()
        if self._shared is None:
            self._path.unlink(missing_ok=True)
        self._remove_folder()

    def constant(self, name: str) -> Entry:
        """Return a constant as it is in the model."""
        entry = self._entries.get(name)
        if entry is None:
            entry = self._entries[name] = self.add(name, self._constants[name])
        return entry

    def array(self, name: str) -> Array:
        """Return the value of a constant."""
        return self._constants[name]

    def _real(self, name: str) -> Float:
        return np.asarray(self._constants[name], np.float32)

    def read(self, tensor: StoredTensor) -> memoryview:
        """Return the data of a stored tensor, mapped."""
        end = tensor.offset + tensor.nbytes
        if self._mapped is None or len(self._mapped) < end:
            self._mapped = memoryview(mmap.mmap(self._readable, 0, access=mmap.ACCESS_READ))
        return self._mapped[tensor.offset : end]

    def add(self, name: str, array: Array) -> Entry:
        """Put an array into the file, or into bytes if it is small, and return its entry."""
        if array.dtype == object:
            return protobuf.block(
                protobuf.GRAPH_INITIALIZER, onnx.numpy_helper.from_array(array, name).SerializeToString()
            )
        if array.nbytes < INLINE_BYTES:
            return protobuf.tensor(name, array)
        data = np.asarray(array, order="C")
        plain = data.reshape(-1).view(np.uint8).data
        try:
            offset = append(self._file, plain) if self._shared is None else self._shared.place(plain)
        except OSError as error:
            raise BuildError(
                f"cannot write {data.nbytes:,} bytes of {name!r} to {str(self._path)!r}: {error.strerror}. "
                "Free some space or choose another workspace"
            ) from error
        kind = int(onnx.helper.np_dtype_to_tensor_dtype(data.dtype))
        return StoredTensor(name, kind, data.shape, offset, data.nbytes)

    def scale(self, name: str, axis: int | None, reduction: Reduction | None = None) -> Float:
        """Return the scale of a weight without regard for a bias; with a `reduction` no sum of it saturates."""
        key = (name, axis, reduction)
        if key not in self._scales:
            scale = weight_scale(self._real(name), axis, reduction)
            if not np.all(np.isfinite(scale)):
                raise ModelError(f"the weight {name!r} holds NaN or infinity; the float model is broken there")
            self._scales[key] = scale
        return self._scales[key]

    def table_parameters(self, name: str) -> QuantizationParameters:
        """Return the one scale of a table whose rows are activations. It covers the whole range, as any row may be
        read.
        """
        if name not in self._tables:
            table = self._real(name)
            low, high = float(table.min()), float(table.max())
            if not np.isfinite(high - low):
                raise ModelError(f"the table {name!r} holds NaN or infinity; the float model is broken there")
            self._tables[name] = activation_parameters(low, high, "asym")
        return self._tables[name]

    def table(self, name: str) -> tuple[str, Entry]:
        """Return a table in uint8: its name and its entry."""
        quantized = self._mark.join((name, "table", "q"))
        if quantized not in self._entries:
            values = quantize_table(self._real(name), self.table_parameters(name)).values
            self._entries[quantized] = self.add(quantized, values)
        return quantized, self._entries[quantized]

    def operand(self, name: str) -> WeightParts:
        """Return a constant operand in uint8, which is exact for a single number."""
        key = (name, "operand")
        if key not in self._weights:
            table = quantize_table(self._real(name), self.table_parameters(name))
            self._weights[key] = self.constant_parts(self._mark.join(key), *table)
        return self._weights[key]

    def row_scales(self, name: str, axis: int) -> tuple[str, Entry]:
        """Return the scale of each row of an int8 table, to be looked up like the rows: the name and the entry."""
        rows = self._mark.join((name, f"axis{axis}", "rows"))
        if rows not in self._entries:
            shape = [1] * self._constants[name].ndim
            shape[axis] = -1
            self._entries[rows] = self.add(rows, self.scale(name, axis).reshape(shape))
        return rows, self._entries[rows]

    def int8(
        self,
        name: str,
        axis: int | None,
        scale: Float | None = None,
        owner: str = "",
        reduction: Reduction | None = None,
    ) -> WeightParts:
        """Return a weight in int8; with a `reduction` no sum of it saturates.

        `scale` and `owner` are given when one op needs a wider scale than the weight itself.
        """
        wide = b"" if scale is None else scale.tobytes()
        key = (name, axis, owner if scale is not None else "", wide, reduction)
        weight = self._weights.get(key)
        if weight is None:
            weight = self._weights[key] = self._quantize(name, axis, scale, owner, reduction)
        return weight

    def transposed(self, name: str, axis: int | None, reduction: Reduction | None = None) -> tuple[str, Entry]:
        """Return the integers of an int8 matrix with its axes exchanged: their name and their entry."""
        parts = (name, *_parts(axis, reduction), "turned")
        values = quantize_weight(self._real(name), axis, self.scale(name, axis, reduction), reduction).values
        label = self._mark.join(parts)
        return label, self.add_once(label, np.ascontiguousarray(values.T))

    def add_once(self, name: str, array: Array) -> Entry:
        """Add an array under a name of its own, unless it was added before, and return its entry."""
        if name not in self._entries:
            self._entries[name] = self.add(name, array)
        return self._entries[name]

    def bias_scale(self, bias: str, activation_scale: Float, scale: Float) -> Float | None:
        """Return a wider scale of the weight if the bias needs one to fit int32."""
        return scale_for_bias(self._real(bias), activation_scale, scale)

    def bias(self, name: str, bias: str, activation_scale: Float, scale: Float) -> tuple[bytes, tuple[Entry, ...]]:
        """Return the node that dequantizes an int32 bias into `name`, and its constants."""
        return self.bias_parts(name, self._real(bias), activation_scale, scale)

    def bias_parts(
        self, name: str, values: Float, activation_scale: Float, scale: Float
    ) -> tuple[bytes, tuple[Entry, ...]]:
        """Return the node that dequantizes these values, as an int32 bias, into `name`, and its constants."""
        steps, step = bias_steps(values, activation_scale, scale)
        quantized, scaled = f"{name}{self._mark}q", f"{name}{self._mark}scale"
        axis = {"axis": 0} if step.ndim else {}
        node = protobuf.node("DequantizeLinear", [quantized, scaled], [name], name, **axis)
        return node, (protobuf.tensor(quantized, steps), protobuf.tensor(scaled, step))

    def _quantize(
        self, name: str, axis: int | None, scale: Float | None, owner: str, reduction: Reduction | None
    ) -> WeightParts:
        weight_scale_used = self.scale(name, axis, reduction) if scale is None else scale
        parts = [name, *_parts(axis, reduction)] + ([owner] if scale is not None else [])
        return self.weight_parts(self._mark.join(parts), self._real(name), axis, weight_scale_used, reduction)

    def weight_parts(
        self, base: str, weight: Float, axis: int | None, scale: Float, reduction: Reduction | None = None
    ) -> WeightParts:
        """Return values as an int8 weight in steps of a scale, under names that begin with `base`."""
        return self.constant_parts(base, *quantize_weight(weight, axis, scale, reduction))

    def constant_parts(self, base: str, values: Array, parameters: QuantizationParameters) -> WeightParts:
        """Return integers and the node that dequantizes them, under names that begin with `base`."""
        quantized, scaled, zero = (f"{base}{self._mark}{part}" for part in ("q", "scale", "zero"))
        output = f"{base}{self._mark}dq"
        axis = {} if parameters.axis is None else {"axis": parameters.axis}
        node = protobuf.node("DequantizeLinear", [quantized, scaled, zero], [output], output, **axis)
        entries = (
            self.add(quantized, values),
            protobuf.tensor(scaled, parameters.scale),
            protobuf.tensor(zero, parameters.zero_point),
        )
        return WeightParts(node, entries, output, quantized)


def _parts(axis: int | None, reduction: Reduction | None) -> list[str]:
    """Return the parts of an int8 weight's name that describe its scale."""
    parts = ["tensor" if axis is None else f"axis{axis}"]
    return parts if reduction is None else [*parts, f"bounded along {','.join(map(str, reduction))}"]
