"""Weights in blocks of 4 or 8 bits. Each block of a row has its own scale and zero point."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from onnx import NodeProto, TensorProto

from quaver.adapters.onnxrt.build import protobuf
from quaver.adapters.onnxrt.build.affine import Float
from quaver.adapters.onnxrt.build.lstm import DOMAIN
from quaver.adapters.onnxrt.build.rounding import Blocks, Bytes, Source, quantize_blocks, round_blocks
from quaver.adapters.onnxrt.build.weight_store import Entry
from quaver.adapters.onnxrt.load.graph import integer
from quaver.adapters.onnxrt.ops.blocks import INT4_PER_BLOCK, ROUNDING, is_rounded
from quaver.adapters.onnxrt.ops.unit import Unit
from quaver.errors import BuildError
from quaver.ops import OpConfig
from quaver.types import Array

if TYPE_CHECKING:
    from quaver.adapters.onnxrt.build.builder import Builder

# The bits of two numbers in a byte.
FOUR = 4
# The accuracy level of MatMulNBits: it rounds activations to int8 block by block. A token then takes 0.3 of fp32's time
# in 4 or 8 bits, and without it 1.0 in 4 bits and 20 to 30 in 8 bits (ONNX Runtime 1.31, a matrix of 576 x 4000).
ACCURACY_LEVEL = 4


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
    is_in_rows = node.op_type == "Conv" or (node.op_type == "Gemm" and integer(node, "transB", 0))
    return not unit.is_embedding and not is_in_rows


def in_rows(builder: Builder, unit: Unit) -> Float:
    """Return the weight of a unit as a matrix whose rows are cut into blocks."""
    assert unit.weight is not None
    builder.store.scale(unit.weight, None)  # raises ModelError if the weight holds NaN or infinity
    values = np.asarray(builder.store.array(unit.weight), np.float32)
    return values.T if is_transposed(builder, unit) else values.reshape(len(values), -1)


def dequantized(builder: Builder, unit: Unit, choice: OpConfig) -> Float:
    """Return the weight of a unit rounded as in a choice, in the shape that it has in the model."""
    assert unit.weight is not None
    real = quantized(builder, unit, choice).dequantized(in_rows(builder, unit).shape[1])
    return real.T if is_transposed(builder, unit) else real.reshape(builder.store.array(unit.weight).shape)


def quantized(builder: Builder, unit: Unit, choice: OpConfig) -> Blocks:
    """Return the weight of a unit in the blocks of a choice."""
    rows, bits, size = in_rows(builder, unit), choice.precision.bits, choice.block_size
    if not is_rounded(choice):
        return quantize_blocks(rows, bits, size)
    reads = multiplied_with(builder, unit)
    if builder.moments is None or reads is None:
        raise BuildError(
            f"{ROUNDING!r} of op {unit.op.name!r} needs calibration samples, and there are none: calibrate the model"
        )
    return round_blocks(rows, builder.moments.factor(reads), bits, size)


def multiplied_with(builder: Builder, unit: Unit) -> Source | None:
    """Return what the weight of a unit is multiplied with; for a table that of the head it is tied to."""
    node = builder.graph.nodes[unit.anchor]
    if node.op_type == "Conv":
        assert unit.weight is not None
        return Source.of_convolution(node, builder.store.array(unit.weight).shape)
    if not unit.is_embedding:
        return Source(unit.activations[0])
    tied = builder.graph.tied
    heads = [other for other in builder.units if tied.get(other.weight or "") == unit.weight]
    return Source(heads[0].activations[0]) if heads else None


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
    blocks = quantized(builder, unit, choice)
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
    label = (
        "four bits"
        if choice == INT4_PER_BLOCK
        else " ".join((str(choice.precision.bits), "bits by", str(choice.block_size), *choice.repairs))
    )
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


def convolution(
    builder: Builder, unit: Unit, choice: OpConfig, source: str, target: str, mark: str
) -> tuple[bytes, tuple[tuple[str, Entry], ...]]:
    """Return the Conv of a unit, and the constants it reads.

    No kernel reads a kernel in blocks. Standard operators unpack it, which ONNX Runtime computes once, when the model
    loads: the file is small, and the speed that of fp32.
    """
    assert unit.weight is not None
    shape = builder.store.array(unit.weight).shape
    blocks, size = quantized(builder, unit, choice), choice.block_size
    height, count, _ = blocks.steps.shape
    width = math.prod(shape[1:])
    label = f"{choice.precision.bits} bits by {' '.join((str(size), *choice.repairs))}"
    stored: dict[str, Array] = {
        "q": packed(blocks.steps)[..., None],
        "zero": blocks.zero[..., None],
        "scale": blocks.scale[..., None],
    }
    small: dict[str, Array] = {
        "1/16": np.array(1 / 16, np.float32),
        "16": np.array(16, np.float32),
        "blocks": np.array([height, count, size]),
        "shape": np.array(shape),
    }
    names = {part: builder.label(unit.op.name, f"{label} {part}") for part in stored}

    def name(part: str) -> str:
        return names.get(part) or builder.label(str(unit.anchor), part) + mark  # short: small models have many

    steps: list[tuple[str, list[str], str, dict[str, int]]] = [
        ("Cast", ["q"], "a", {"to": TensorProto.FLOAT}),
        ("Mul", ["a", "1/16"], "b", {}),
        ("Floor", ["b"], "c", {}),
        ("Mul", ["c", "16"], "d", {}),
        ("Sub", ["a", "d"], "e", {}),
        ("Concat", ["e", "c"], "f", {"axis": 3}),
        ("Reshape", ["f", "blocks"], "g", {}),
        ("Cast", ["zero"], "h", {"to": TensorProto.FLOAT}),
        ("Sub", ["g", "h"], "i", {}),
        ("Mul", ["i", "scale"], "j", {}),
    ]
    last = "j"
    if width < count * size:  # the last block is padded
        small |= {"rows": np.array([height, count * size]), "0": np.array([0]), "1": np.array([1])}
        small |= {"width": np.array([width])}
        steps += [("Reshape", ["j", "rows"], "k", {}), ("Slice", ["k", "0", "width", "1"], "l", {})]
        last = "l"
    steps.append(("Reshape", [last, "shape"], "w", {}))
    entries = [(name(part), builder.store.add_once(name(part), array)) for part, array in stored.items()]
    entries += [(name(part), protobuf.tensor(name(part), array)) for part, array in small.items()]
    nodes = b"".join(
        protobuf.node(kind, [name(part) for part in reads], [name(writes)], name(writes), **attributes)
        for kind, reads, writes, attributes in steps
    )
    node = NodeProto()
    node.CopyFrom(builder.graph.nodes[unit.anchor])
    node.name += mark
    node.input[0], node.input[1], node.output[0] = source, name("w"), target
    return nodes + protobuf.block(protobuf.GRAPH_NODE, node.SerializeToString(deterministic=True)), tuple(entries)


def lookup(
    builder: Builder, unit: Unit, choice: OpConfig, row_numbers: str, target: str, name: str
) -> tuple[bytes, Constants]:
    """Return the GatherBlockQuantized of a unit, and the table it reads."""
    table = builder.blocks(unit.anchor, choice)
    values, *scale_and_zero = table.names
    sizes = {"gather_axis": 0, "quantize_axis": 1, "block_size": choice.block_size, "bits": choice.precision.bits}
    read = [values, row_numbers, *scale_and_zero]
    return protobuf.node("GatherBlockQuantized", read, [target], name, domain=DOMAIN[0], **sizes), table
