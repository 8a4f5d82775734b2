"""Weights in blocks of 4 or 8 bits. Each block of a row has its own scale and zero point."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from quaver.adapters.onnxrt.build import protobuf
from quaver.adapters.onnxrt.build.affine import Float
from quaver.adapters.onnxrt.build.lstm import DOMAIN
from quaver.adapters.onnxrt.build.weight_store import Entry
from quaver.adapters.onnxrt.load.graph import integer
from quaver.adapters.onnxrt.ops.blocks import BLOCK, INT4_PER_BLOCK
from quaver.adapters.onnxrt.ops.unit import Unit
from quaver.ops import OpConfig
from quaver.types import Array

if TYPE_CHECKING:
    from quaver.adapters.onnxrt.build.builder import Builder

Bytes = NDArray[np.uint8]
# The bits of two numbers in a byte.
FOUR = 4
# The accuracy level of MatMulNBits: it rounds activations to int8 block by block. A token then takes 0.3 of fp32's time
# in 4 or 8 bits, and without it 1.0 in 4 bits and 20 to 30 in 8 bits (ONNX Runtime 1.31, a matrix of 576 x 4000).
ACCURACY_LEVEL = 4


class Blocks(NamedTuple):
    """A matrix in blocks, not packed yet.

    Attributes:
        steps: [rows, blocks, size], from 0 to the largest number of these bits; the last block is padded with zeros.
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


def quantize_blocks(rows: Float, bits: int = FOUR, size: int = BLOCK) -> Blocks:
    """Round a matrix over the whole range of each block. Zero is exact, because it may mean padding."""
    blocks = in_blocks(rows, size)
    scale, zero = whole_ranges(blocks, bits)
    blocks /= scale[..., None]
    np.rint(blocks, out=blocks)
    blocks += zero[..., None]
    np.clip(blocks, 0, 2**bits - 1, out=blocks)
    return Blocks(blocks.astype(np.uint8), scale, zero)


def in_blocks(rows: Float, size: int) -> Float:
    """Return a copy of a matrix as [rows, blocks, size], padded with zeros."""
    height, width = rows.shape
    padded = np.zeros((height, -(-width // size) * size), np.float32)
    padded[:, :width] = rows
    return padded.reshape(height, -1, size)


def whole_ranges(blocks: Float, bits: int) -> tuple[Float, Bytes]:
    """Return the scale and the zero point of each block that cover its whole range."""
    levels = 2**bits - 1
    low, high = np.minimum(blocks.min(-1), 0), np.maximum(blocks.max(-1), 0)
    scale = (high / np.float32(levels) - low / np.float32(levels)).astype(np.float32)
    scale = np.where(scale < np.finfo(np.float32).tiny, np.float32(1), scale)
    return scale, np.clip(np.rint(-low / scale), 0, levels).astype(np.uint8)


def packed(steps: Bytes) -> Bytes:
    """Pack two numbers of the last axis into a byte, the first one in its lower half."""
    even = steps if steps.shape[-1] % 2 == 0 else np.concatenate([steps, np.zeros_like(steps[..., :1])], axis=-1)
    return np.asarray(even[..., ::2] | even[..., 1::2] << 4, np.uint8)


def unpacked(values: Bytes) -> Bytes:
    """Undo `packed` along the last axis."""
    return np.stack([values & 15, values >> 4], axis=-1).reshape(*values.shape[:-1], -1)


def is_transposed(builder: Builder, unit: Unit) -> bool:
    """Return True if blocks run along columns of the stored matrix: a product has a row of blocks for each output
    channel.
    """
    node = builder.graph.nodes[unit.anchor]
    return not unit.is_embedding and not (node.op_type == "Gemm" and integer(node, "transB", 0))


def in_rows(builder: Builder, unit: Unit) -> Float:
    """Return the weight of a unit as a matrix whose rows are cut into blocks."""
    assert unit.weight is not None
    builder.store.scale(unit.weight, None)  # raises ModelError if the weight holds NaN or infinity
    values = np.asarray(builder.store.array(unit.weight), np.float32)
    return values.T if is_transposed(builder, unit) else values


def dequantized(builder: Builder, unit: Unit, choice: OpConfig) -> Float:
    """Return the weight of a unit rounded as in a choice, in the shape that it has in the model."""
    values = in_rows(builder, unit)
    real = quantized(values, choice).dequantized(values.shape[1])
    return real.T if is_transposed(builder, unit) else real


def quantized(rows: Float, choice: OpConfig) -> Blocks:
    """Return a matrix in the blocks of a choice."""
    return quantize_blocks(rows, choice.precision.bits, choice.block_size)


class Constants(NamedTuple):
    """A weight in blocks in a graph.

    Attributes:
        height: how many rows it has.
        width: how many numbers a row has.
        entries: its integers, scales and zero points, by name.
        shape: the shape of the integers that a product needs, if they are stored as those of a table.
    """

    height: int
    width: int
    entries: tuple[tuple[str, Entry], ...]
    shape: tuple[int, int, int] | None = None

    @property
    def names(self) -> list[str]:
        """The names of its constants."""
        return [name for name, _ in self.entries]


def constants(builder: Builder, anchor: int, choice: OpConfig) -> Constants:
    """Return the weight of the unit with this anchor, in the layout that its kernel reads.

    A head that is tied to its embedding has the layout of the table, so that both read the same constants.
    """
    unit = builder.unit_of[anchor]
    assert unit.weight is not None
    values = in_rows(builder, unit)
    blocks = quantized(values, choice)
    is_packed = choice.precision.bits == FOUR
    pack = packed if is_packed else np.asarray
    arrays: dict[str, Array] = {"q": pack(blocks.steps), "scale": blocks.scale, "zero": pack(blocks.zero)}
    shape = arrays["q"].shape
    tied = builder.graph.tied
    table = tied.get(unit.weight, unit.weight)
    if unit.is_embedding or unit.weight in tied:
        arrays["q"] = arrays["q"].reshape(len(values), -1)
    else:
        arrays |= {part: arrays[part].reshape(-1) for part in ("scale", "zero")}
    label = "four bits" if choice == INT4_PER_BLOCK else f"{choice.precision.bits} bits by {choice.block_size}"
    names = {part: builder.label(table, f"{label} {part}") for part in arrays}
    entries = tuple((names[part], builder.store.add_once(names[part], array)) for part, array in arrays.items())
    height, width = values.shape
    return Constants(height, width, entries, (shape[0], shape[1], shape[2]) if unit.weight in tied else None)


def product(
    builder: Builder, unit: Unit, choice: OpConfig, source: str, target: str, name: str
) -> tuple[bytes, tuple[tuple[str, Entry], ...]]:
    """Return the MatMulNBits of a unit, without its bias, and the constants it reads."""
    weight = builder.blocks(unit.anchor, choice)
    entries, (integers, *scale_and_zero) = weight.entries, weight.names
    sizes = {
        "K": weight.width,
        "N": weight.height,
        "block_size": choice.block_size,
        "bits": choice.precision.bits,
        "accuracy_level": ACCURACY_LEVEL,
    }
    reshape = b""
    if weight.shape is not None:
        shape, reshaped = (builder.label(name, part) for part in ("shape of blocks", "in blocks"))
        reshape = protobuf.node("Reshape", [integers, shape], [reshaped], reshaped)
        entries, integers = (*entries, (shape, protobuf.tensor(shape, np.array(weight.shape)))), reshaped
    read = [source, integers, *scale_and_zero]
    return reshape + protobuf.node("MatMulNBits", read, [target], name, domain=DOMAIN[0], **sizes), entries


def lookup(
    builder: Builder, unit: Unit, choice: OpConfig, row_numbers: str, target: str, name: str
) -> tuple[bytes, Constants]:
    """Return the GatherBlockQuantized of a unit, and the table it reads."""
    table = builder.blocks(unit.anchor, choice)
    values, *scale_and_zero = table.names
    sizes = {"gather_axis": 0, "quantize_axis": 1, "block_size": choice.block_size, "bits": choice.precision.bits}
    read = [values, row_numbers, *scale_and_zero]
    return protobuf.node("GatherBlockQuantized", read, [target], name, domain=DOMAIN[0], **sizes), table
