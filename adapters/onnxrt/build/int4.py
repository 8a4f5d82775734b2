"""Weights of four bits, two numbers in a byte. Each block of a row has its own scale and zero point."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from quaver.adapters.onnxrt.build import protobuf
from quaver.adapters.onnxrt.build.affine import Float
from quaver.adapters.onnxrt.build.lstm import DOMAIN
from quaver.adapters.onnxrt.build.weight_store import Entry
from quaver.adapters.onnxrt.load.graph import integer
from quaver.adapters.onnxrt.ops.int4 import BLOCK
from quaver.adapters.onnxrt.ops.unit import Unit
from quaver.types import Array

if TYPE_CHECKING:
    from quaver.adapters.onnxrt.build.builder import Builder

Bytes = NDArray[np.uint8]
LEVELS = 15
# The accuracy level of MatMulNBits: it rounds activations to int8 block by block, as the 8-bit kernel does.
ACCURACY_LEVEL = 4


class Blocks(NamedTuple):
    """A matrix in four bits, not packed yet.

    Attributes:
        steps: [rows, blocks, BLOCK], from 0 to 15; the last block is padded with zeros.
        scale: [rows, blocks].
        zero: the step that stands for zero, [rows, blocks].
    """

    steps: Bytes
    scale: Float
    zero: Bytes

    def dequantized(self, width: int) -> Float:
        """Return the matrix as float32, with rows of this width."""
        real = (self.steps.astype(np.float32) - self.zero[..., None]) * self.scale[..., None]
        return real.reshape(len(real), -1)[:, :width]


def quantize_blocks(rows: Float) -> Blocks:
    """Round a matrix to four bits over the whole range of each block. Zero is exact, because it may mean padding."""
    height, width = rows.shape
    padded = np.zeros((height, -(-width // BLOCK) * BLOCK), np.float32)
    padded[:, :width] = rows
    blocks = padded.reshape(height, -1, BLOCK)
    low, high = np.minimum(blocks.min(-1), 0), np.maximum(blocks.max(-1), 0)
    scale = (high / np.float32(LEVELS) - low / np.float32(LEVELS)).astype(np.float32)
    scale = np.where(scale < np.finfo(np.float32).tiny, np.float32(1), scale)
    zero = np.clip(np.rint(-low / scale), 0, LEVELS).astype(np.uint8)
    blocks /= scale[..., None]
    np.rint(blocks, out=blocks)
    blocks += zero[..., None]
    np.clip(blocks, 0, LEVELS, out=blocks)
    return Blocks(blocks.astype(np.uint8), scale, zero)


def packed(steps: Bytes) -> Bytes:
    """Pack two numbers of the last axis into a byte, the first one in its lower half."""
    even = steps if steps.shape[-1] % 2 == 0 else np.concatenate([steps, np.zeros_like(steps[..., :1])], axis=-1)
    return np.asarray(even[..., ::2] | even[..., 1::2] << 4, np.uint8)


def unpacked(values: Bytes) -> Bytes:
    """Undo `packed` along the last axis."""
    return np.stack([values & LEVELS, values >> 4], axis=-1).reshape(*values.shape[:-1], -1)


def is_transposed(builder: Builder, unit: Unit) -> bool:
    """Return True if blocks run along columns of the stored matrix: a product has a row of blocks for each output
    channel.
    """
    node = builder.graph.nodes[unit.anchor]
    return not unit.is_embedding and not (node.op_type == "Gemm" and integer(node, "transB", 0))


def _in_rows(builder: Builder, unit: Unit) -> Float:
    assert unit.weight is not None
    builder.store.scale(unit.weight, None)  # raises ModelError if the weight holds NaN or infinity
    values = np.asarray(builder.store.array(unit.weight), np.float32)
    return values.T if is_transposed(builder, unit) else values


def dequantized(builder: Builder, unit: Unit) -> Float:
    """Return the weight of a unit rounded to four bits, in the shape that it has in the model."""
    values = _in_rows(builder, unit)
    real = quantize_blocks(values).dequantized(values.shape[1])
    return real.T if is_transposed(builder, unit) else real


class Constants(NamedTuple):
    """A weight of four bits in a graph.

    Attributes:
        height: how many rows it has.
        width: how many numbers a row has.
        entries: its integers, scales and zero points, by name.
    """

    height: int
    width: int
    entries: tuple[tuple[str, Entry], ...]

    @property
    def names(self) -> list[str]:
        """The names of its constants."""
        return [name for name, _ in self.entries]


def constants(builder: Builder, anchor: int) -> Constants:
    """Return the four-bit weight of the unit with this anchor, in the layout that its kernel reads."""
    unit = builder.unit_of[anchor]
    assert unit.weight is not None
    values = _in_rows(builder, unit)
    blocks = quantize_blocks(values)
    arrays: dict[str, Array] = {"q": packed(blocks.steps), "scale": blocks.scale, "zero": packed(blocks.zero)}
    if unit.is_embedding:
        arrays["q"] = arrays["q"].reshape(len(values), -1)
    else:
        arrays |= {part: arrays[part].reshape(-1) for part in ("scale", "zero")}
    names = {part: builder.label(unit.weight, f"four bits {part}") for part in arrays}
    entries = tuple((names[part], builder.store.add_once(names[part], array)) for part, array in arrays.items())
    height, width = values.shape
    return Constants(height, width, entries)


def product(builder: Builder, unit: Unit, source: str, target: str, name: str) -> tuple[bytes, Constants]:
    """Return the MatMulNBits of a unit, without its bias, and the weight it reads."""
    weight = builder.int4(unit.anchor)
    sizes = {"K": weight.width, "N": weight.height, "block_size": BLOCK, "bits": 4, "accuracy_level": ACCURACY_LEVEL}
    return protobuf.node("MatMulNBits", [source, *weight.names], [target], name, domain=DOMAIN[0], **sizes), weight


def lookup(builder: Builder, unit: Unit, row_numbers: str, target: str, name: str) -> tuple[bytes, Constants]:
    """Return the GatherBlockQuantized of a unit, and the table it reads."""
    table = builder.int4(unit.anchor)
    values, *scale_and_zero = table.names
    sizes = {"gather_axis": 0, "quantize_axis": 1, "block_size": BLOCK, "bits": 4}
    read = [values, row_numbers, *scale_and_zero]
    return protobuf.node("GatherBlockQuantized", read, [target], name, domain=DOMAIN[0], **sizes), table
