"""Weights in blocks of 4 or 8 bits: which ones have a kernel that reads them so.

`MatMulNBits` and `GatherBlockQuantized` are operators of ONNX Runtime's own.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import onnxruntime as ort
from onnx import NodeProto, TensorProto, helper, numpy_helper

from quaver.adapters.onnxrt.load.graph import Graph, integer
from quaver.ops import BLOCK_SIZES, INT4, INT8, PER_BLOCK, Op, OpConfig, Precision
from quaver.types import Array

# The default size of a block: 4.6 bits a number. With 32 it is 5.1 bits and 0.8 of the error, with 128 4.3 bits and 1.2
# times the error.
BLOCK = BLOCK_SIZES[PER_BLOCK]
# Judgement: a smaller weight saves too little to be worth a decision.
ELEMENTS = 2**12
# Judgement: scales and zero points of shorter rows take a large part of what four bits save.
MIN_TAPS = 24

# Second moments of wider rows take more memory than most models. Judgement: 512 channels of 3 x 3 are within.
MAX_ROUNDED_WIDTH = 4608

INT4_PER_BLOCK = OpConfig(INT4, granularity=PER_BLOCK, mode="weight_only")
# The repair that rounds a weight in blocks by the second moments of what it is multiplied with.
ROUNDING = "rounding"
# The default size comes first: it is the choice of a strategy that only looks for fewer bits.
_INT4_BLOCKS = tuple(OpConfig(INT4, granularity=granularity, mode="weight_only") for granularity in BLOCK_SIZES)
_INT8_BLOCKS = tuple(
    OpConfig(INT8, granularity=granularity, mode="weight_only")
    for granularity in sorted(BLOCK_SIZES, key=lambda name: -BLOCK_SIZES[name])
)


def weight_bytes(shape: tuple[int, int], choice: OpConfig) -> int:
    """Return the bytes of a matrix in blocks: its numbers, and a scale and a zero point for each block.

    Args:
        shape: the number of rows that are cut into blocks, and their width.
        choice: bits and size of the blocks.
    """
    height, width = shape
    bits, size = choice.precision.bits, choice.block_size
    blocks = -(-width // size)
    return height * (blocks * size * bits // 8 + blocks * 4 + -(-blocks * bits // 8))


def offer_int4(graph: Graph, op: Op, node: NodeProto, weight: str) -> Op:
    """Return the op with four-bit choices for its weight, for size, if the runtime reads it so.

    A weight that others read too is not offered: it would be stored once more. Choices that round by second moments
    come last; they go where there are no samples.
    """
    if weight in graph.captured or len(graph.consumers.get(weight, ())) > 1:
        return op
    choices = block_choices(graph, node, weight, INT4)
    width = math.prod(graph.constants[weight].shape[1:])
    can_round = node.op_type != "Gather" and integer(node, "group", 1) == 1 and width <= MAX_ROUNDED_WIDTH
    rounded = with_rounding(choices) if can_round else []
    return replace(op, smaller=(*choices, *rounded))


def with_rounding(choices: Iterable[OpConfig]) -> list[OpConfig]:
    """Return four-bit choices with rounding by second moments. In 8 bits it brings nothing."""
    return [replace(choice, repairs=(ROUNDING,)) for choice in choices if choice.precision == INT4]


def without_rounding(op: Op) -> Op:
    """Return an op without the choices that round by second moments."""
    choices, smaller = ([item for item in some if not is_rounded(item)] for some in (op.choices, op.smaller))
    return replace(op, choices=tuple(choices), smaller=tuple(smaller))


def is_rounded(choice: OpConfig) -> bool:
    """Return True if a choice rounds by second moments."""
    return ROUNDING in choice.repairs


def block_choices(graph: Graph, node: NodeProto, weight: str, precision: Precision) -> list[OpConfig]:
    """Return the block sizes of a weight in 4 or 8 bits: all that take fewer bytes than half of their size does.

    In 8 bits only the largest one: the error of 8 bits hardly depends on it.
    """
    shape = graph.constants[weight].shape
    is_table, is_convolution = node.op_type == "Gather", node.op_type == "Conv"
    if (len(shape) != 2 and not is_convolution) or math.prod(shape) < ELEMENTS:
        return []
    has_rows = is_table or is_convolution or (node.op_type == "Gemm" and integer(node, "transB", 0))
    height, width = (shape[0], math.prod(shape[1:])) if has_rows else shape[::-1]
    if is_convolution and width < MIN_TAPS:
        return []
    # Rows that end within a block are read wrongly by kernels other than the CPU's.
    needs_whole_blocks = is_table or weight in graph.tied or weight in graph.tied.values()
    if is_table and (integer(node, "axis", 0) % 2 != 0 or not _looks_up_blocks(precision.bits)):
        return []
    choices = []
    for choice in _INT4_BLOCKS if precision == INT4 else _INT8_BLOCKS:
        size, least = choice.block_size, min(BLOCK_SIZES.values())
        smaller = [other for other in _INT4_BLOCKS if other.block_size < size]
        is_wasteful = any(
            weight_bytes((height, width), choice) >= weight_bytes((height, width), replace(other, precision=precision))
            for other in smaller
        )
        fits = width % size == 0 if needs_whole_blocks else width >= size or is_convolution
        if fits and (size == least or not is_wasteful):
            choices.append(choice)
    return choices[:1] if precision == INT8 else choices


@functools.cache
def _looks_up_blocks(bits: int) -> bool:
    """Return True if this version of ONNX Runtime looks up rows in blocks with zero points, with the right values.

    Versions before 1.27 read the zero points of another row if a row has an odd number of blocks of 4 bits.
    """
    height, blocks = 3, 3
    chance = np.random.default_rng(0)
    values = chance.integers(0, 2**bits, (height, blocks * BLOCK), dtype=np.uint8)
    zeros = chance.integers(0, 2**bits, (height, blocks), dtype=np.uint8)
    scales = chance.uniform(0.5, 1.5, (height, blocks)).astype(np.float32)
    expected = (values.astype(np.float32) - np.repeat(zeros, BLOCK, 1)) * np.repeat(scales, BLOCK, 1)
    constants: dict[str, Array] = {
        "rows": _packed(values) if bits == 4 else values,
        "scales": scales,
        "zeros": _packed(zeros) if bits == 4 else zeros,
    }
    inputs = [helper.make_tensor_value_info("index", TensorProto.INT64, [height])]
    outputs = [helper.make_tensor_value_info("found", TensorProto.FLOAT, None)]
    node = helper.make_node(
        "GatherBlockQuantized", ["rows", "index", "scales", "zeros"], ["found"], domain="com.microsoft",
        gather_axis=0, quantize_axis=1, block_size=BLOCK, bits=bits,
    )  # fmt: skip
    graph = helper.make_graph(
        [node], "", inputs, outputs, [numpy_helper.from_array(array, name) for name, array in constants.items()]
    )
    domains = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    options = ort.SessionOptions()
    options.log_severity_level = 4
    try:
        model = helper.make_model(graph, opset_imports=domains, ir_version=8).SerializeToString()
        rows = ort.InferenceSession(model, options).run(None, {"index": np.arange(height)})[0]
    except Exception:
        return False
    return bool(rows.shape == expected.shape and np.allclose(rows, expected))


def _packed(values: Array) -> Array:
    """Return numbers of 4 bits, two in a byte; rows are filled up with a zero."""
    even = np.pad(values, ((0, 0), (0, values.shape[1] % 2)))
    bytes_of: Array = even[:, ::2] | (even[:, 1::2] << 4)
    return bytes_of
