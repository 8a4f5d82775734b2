"""Int8 ops that read float and write float: with ranges taken at run time (dynamic), or with the weight alone in int8.

They are written in standard ONNX where it can express them. The optimiser makes one kernel of each:
DynamicQuantizeMatMul or MatMulIntegerToFloat of a dynamic product, MatMulNBits of one with its weight alone in int8. A
weight of four bits cannot be expressed in the opset of most models, so the file names that kernel itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from onnx import NodeProto, TensorProto

from quaver.adapters.onnxrt.build import blocks, protobuf
from quaver.adapters.onnxrt.build.lstm import lstm_parts
from quaver.adapters.onnxrt.build.weight_store import Entry
from quaver.adapters.onnxrt.load.graph import integer
from quaver.adapters.onnxrt.ops.unit import Unit
from quaver.errors import BuildError
from quaver.ops import INT8, OpConfig

if TYPE_CHECKING:
    from quaver.adapters.onnxrt.build.builder import Builder

# Ends of the names of a product's nodes and tensors; the node that multiplies keeps the name of the op.
PARTS = ("product", "product as float", "product scale", "scaled product", "biased", "weight")
# Ends of the names of a dynamically quantized tensor: its integers, their scale and their zero point.
DYNAMIC = ("dynamic q", "dynamic scale", "dynamic zero")


class FloatIoParts(NamedTuple):
    """An op that reads and writes float, as parts of a graph.

    Attributes:
        nodes: its nodes, in order.
        entries: its constants, by name.
        reads: other constants of the model that it reads.
        shared: nodes that several ops may use, by the name of their output; they come first.
        uses_ort_domain: True if a node is one of ONNX Runtime's own operators.
    """

    nodes: bytes
    entries: tuple[tuple[str, Entry], ...]
    reads: tuple[str, ...] = ()
    shared: tuple[tuple[str, bytes], ...] = ()
    uses_ort_domain: bool = False


def float_io_op(
    builder: Builder, unit: Unit, choice: OpConfig, source: str, target: str, mark: str = ""
) -> FloatIoParts:
    """Return the anchor of a dynamic or weight-only unit as parts of a graph.

    Args:
        builder: the builder of the model.
        unit: the op.
        choice: how it runs.
        source: the float tensor to read.
        target: the float tensor to write.
        mark: the end of all other names it makes.
    """
    if choice.repairs and not choice.block_size:
        raise BuildError(
            f"repair {choice.repairs[0]!r} of op {unit.op.name!r} needs calibrated activations, and it is {choice.mode}"
        )
    node = builder.graph.nodes[unit.anchor]
    if unit.is_lstm and choice.mode == "dynamic":
        nodes, entries, reads = lstm_parts(builder, unit, choice, source, mark)
        return FloatIoParts(nodes, entries, reads, uses_ort_domain=True)
    if node.op_type in ("MatMul", "Gemm") and choice.mode == "dynamic":
        return _dynamic_product(builder, unit, choice, source, target, mark)
    if choice.block_size and node.op_type in ("MatMul", "Gemm"):
        return _product_in_blocks(builder, unit, choice, source, target, mark)
    if choice.block_size and node.op_type == "Conv":
        nodes, entries = blocks.convolution(builder, unit, choice, source, target, mark)
        return FloatIoParts(nodes, entries, tuple(filter(None, node.input[2:])))
    if unit.weight is not None and choice.mode == "weight_only" and choice.precision == INT8:
        return _weight_only(builder, unit, choice, source, target, mark)
    raise BuildError(f"op {unit.op.name!r} ({unit.op.kind}) cannot run as '{choice}'")


class Weight(NamedTuple):
    """The weight of an op in int8.

    Attributes:
        integers: the name of its integers.
        scale: the name of its scale.
        axis: the axis with a scale for each index; None for one scale.
        shape: the shape of the scale.
        entries: its constants, by name.
    """

    integers: str
    scale: str
    axis: int | None
    shape: tuple[int, ...]
    entries: tuple[tuple[str, Entry], ...]


def _weight(builder: Builder, unit: Unit, choice: OpConfig, mark: str) -> Weight:
    """Return the int8 weight of an op as the right side of a product, whichever way a Gemm stores it."""
    assert unit.weight is not None
    store, node = builder.store, builder.graph.nodes[unit.anchor]
    axis = unit.axis if choice.granularity == "per_channel" else None
    # A weight-only op multiplies floats, or uses kernels that add in 32 bits: no sum saturates.
    reduction = builder.reduction(unit) if choice.mode == "dynamic" else None
    values, scale = store.scale(unit.weight, axis, reduction), builder.label(unit.op.name, "weight scale") + mark
    stored = store.int8(unit.weight, axis, reduction=reduction)
    integers, entry = stored.integers, stored.entries[0]
    if node.op_type == "Gemm" and integer(node, "transB", 0):
        integers, entry = store.transposed(unit.weight, axis, reduction)
        axis = None if axis is None else 1 - axis
    return Weight(integers, scale, axis, values.shape, ((integers, entry), (scale, protobuf.tensor(scale, values))))


def _dynamic_product(
    builder: Builder, unit: Unit, choice: OpConfig, source: str, target: str, mark: str
) -> FloatIoParts:
    node = builder.graph.nodes[unit.anchor]
    weight = _weight(builder, unit, choice, mark)
    quantized, scale_name, zero = (builder.label(source, part) for part in DYNAMIC)
    quantize = protobuf.node("DynamicQuantizeLinear", [source], [quantized, scale_name, zero], quantized)
    product, real, scale, scaled, *_ = (builder.label(unit.op.name, part) + mark for part in PARTS)
    bias = next(filter(None, node.input[2:]), "")
    nodes = (
        protobuf.node("MatMulInteger", [quantized, weight.integers, zero], [product], node.name + mark)
        + protobuf.node("Cast", [product], [real], real, to=TensorProto.FLOAT)
        + protobuf.node("Mul", [scale_name, weight.scale], [scale], scale)
        + protobuf.node("Mul", [real, scale], [scaled if bias else target], scaled)
    )
    sum_ = _sum(scaled, bias, target, builder.label(unit.op.name, "biased") + mark)
    return FloatIoParts(nodes + sum_, weight.entries, (bias,) if bias else (), ((quantized, quantize),))


def _weight_only(builder: Builder, unit: Unit, choice: OpConfig, source: str, target: str, mark: str) -> FloatIoParts:
    """Return an op with a dequantized weight. A Gemm becomes MatMul and Add, because those are what the optimiser
    fuses.
    """
    node = builder.graph.nodes[unit.anchor]
    weight = _weight(builder, unit, choice, mark)
    product, *_, real = (builder.label(unit.op.name, part) + mark for part in PARTS)
    zero = builder.label(unit.op.name, "weight zero") + mark
    entries = *weight.entries, (zero, protobuf.tensor(zero, np.zeros(weight.shape, np.int8)))
    axis = {} if weight.axis is None else {"axis": weight.axis}
    nodes = protobuf.node("DequantizeLinear", [weight.integers, weight.scale, zero], [real], real, **axis)
    biases = tuple(filter(None, node.input[2:]))
    if node.op_type != "Gemm":
        product_node = NodeProto()
        product_node.CopyFrom(node)
        product_node.name += mark
        product_node.input[0], product_node.input[1], product_node.output[0] = source, real, target
        nodes += protobuf.block(protobuf.GRAPH_NODE, product_node.SerializeToString(deterministic=True))
        return FloatIoParts(nodes, entries, biases)
    bias = next(iter(biases), "")
    nodes += protobuf.node("MatMul", [source, real], [product if bias else target], node.name + mark)
    nodes += _sum(product, bias, target, builder.label(unit.op.name, "biased") + mark)
    return FloatIoParts(nodes, entries, biases)


def _product_in_blocks(
    builder: Builder, unit: Unit, choice: OpConfig, source: str, target: str, mark: str
) -> FloatIoParts:
    node = builder.graph.nodes[unit.anchor]
    bias = next(filter(None, node.input[2:]), "")
    product = builder.label(unit.op.name, "product") + mark
    target_of_product = product if bias else target
    nodes, entries = blocks.product(builder, unit, choice, source, target_of_product, node.name + mark)
    sum_ = _sum(product, bias, target, builder.label(unit.op.name, "biased") + mark)
    return FloatIoParts(nodes + sum_, entries, (bias,) if bias else (), uses_ort_domain=True)


def _sum(product: str, bias: str, target: str, name: str) -> bytes:
    """Return the node that adds a bias to a product, if there is one."""
    return protobuf.node("Add", [product, bias], [target], name) if bias else b""
