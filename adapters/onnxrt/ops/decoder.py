"""Decoder language models: how they are recognised, and which of their ops are on offer.

A decoder is made of large products with constant weights. Normalization, rotary positions, attention and activations
take little time and hold no weights, so they stay float. What remains is a decision for each weight: 4 or 8 bits.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from onnx import NodeProto, TensorProto

from quaver.adapters.onnxrt.load.graph import Graph, integer
from quaver.adapters.onnxrt.ops.blocks import block_choices, with_rounding
from quaver.adapters.onnxrt.ops.unit import Unit
from quaver.ops import FLOAT, INT4, INT8, OpConfig
from quaver.types import Array

# Judgement: a table of fewer rows is no vocabulary. Alphabets of bytes have 256.
_MIN_VOCABULARY = 256
# What a causal mask is made of, and operators that contain one.
_CAUSAL = {
    "Attention", "Greater", "GreaterOrEqual", "GroupQueryAttention", "Less", "LessOrEqual", "MultiHeadAttention",
    "Trilu",
}  # fmt: skip
# Nodes between the head and an output of the model.
_BEHIND_HEAD = ("Add", "Cast", "Identity", "Reshape", "Mul", "Div", "Tanh")

_DYNAMIC = OpConfig(INT8, mode="dynamic")


def tied_weights(graph: Graph) -> dict[str, str]:
    """Return, for each product that multiplies with the transpose of an embedding table, the constant and the table.

    Constant folding has written the transpose out, although the model stores the table once.
    """
    tables = {node.input[0] for node in graph.nodes if _is_lookup(graph, node)}
    tied = {}
    for node in graph.nodes:
        weight = node.input[1] if node.op_type == "MatMul" and not node.domain else ""
        if weight not in graph.constants or weight in tied or len(graph.consumers.get(weight, ())) != 1:
            continue
        values = graph.constants[weight]
        for table in sorted(tables):
            rows = graph.constants[table]
            if rows.shape == values.shape[::-1] and rows.dtype == values.dtype and _is_transpose(rows, values):
                tied[weight] = table
    return tied


def head_outputs(graph: Graph) -> list[str]:
    """Return the outputs of a model with a score for each row of its embedding table."""
    sizes = {graph.constants[node.input[0]].shape[0] for node in graph.nodes if _is_lookup(graph, node)}
    return [value.name for value in graph.outputs if _head_width(graph, value.name) in sizes]


def is_decoder(graph: Graph) -> bool:
    """Return True for a model that reads token numbers and writes a score for each token of its vocabulary, causally.

    Encoders with such a head (masked language models) have no causal mask, and are not decoders.
    """
    has_past = any(value.name.startswith("past") for value in graph.inputs)
    is_causal = has_past or any(node.op_type in _CAUSAL for node in graph.nodes)
    return is_causal and bool(head_outputs(graph))


def decoder_units(graph: Graph, units: list[Unit]) -> list[Unit]:
    """Return the units of a decoder: those with large weights, each with its choices.

    8 bits come first: they change the outputs least, and are faster than fp32 where a token is decoded at a time. The
    dynamic choice is faster for long prompts. Four bits in blocks follow, then fp32.
    """
    offered = []
    for unit in units:
        if unit.weight is None or not (unit.is_embedding or unit.op.kind in ("MatMul", "Gemm")):
            continue
        node = graph.nodes[unit.anchor]
        eight = block_choices(graph, node, unit.weight, INT8)
        four = block_choices(graph, node, unit.weight, INT4)
        uncalibrated = [choice for choice in unit.op.choices if choice.mode == "weight_only" and unit.is_embedding]
        dynamic = [] if unit.is_embedding or _DYNAMIC not in unit.op.choices else [_DYNAMIC]
        is_product = not unit.is_embedding or unit.weight in graph.tied.values()
        rounded = with_rounding(four) if is_product else []
        quantized = dict.fromkeys([*(eight or uncalibrated), *dynamic, *four, *rounded])
        if quantized:
            offered.append(replace(unit, op=replace(unit.op, choices=(*quantized, FLOAT), smaller=())))
    return offered


def _is_lookup(graph: Graph, node: NodeProto) -> bool:
    table = graph.constants.get(node.input[0]) if node.op_type == "Gather" and not node.domain else None
    if table is None or table.ndim != 2 or table.dtype != np.float32 or len(table) < _MIN_VOCABULARY:
        return False
    is_by_row = integer(node, "axis", 0) == 0 and node.input[1] not in graph.constants
    return is_by_row and _reaches_input(graph, node.input[1])


def _reaches_input(graph: Graph, name: str) -> bool:
    """Return True if row numbers come from an input of the model, at most reshaped or cast."""
    while (index := graph.producers.get(name)) is not None:
        if graph.nodes[index].op_type not in ("Cast", "Reshape", "Identity", "Unsqueeze", "Squeeze"):
            return False
        name = graph.nodes[index].input[0]
    integers = (TensorProto.INT32, TensorProto.INT64)
    return any(value.name == name and value.type.tensor_type.elem_type in integers for value in graph.inputs)


def _head_width(graph: Graph, name: str) -> int:
    """Return the number of outputs of the product that an output of the model comes from; 0 if it is something else."""
    while (index := graph.producers.get(name)) is not None:
        node = graph.nodes[index]
        if node.op_type in ("MatMul", "Gemm"):
            weight = graph.constants.get(node.input[1])
            rows = node.op_type == "Gemm" and integer(node, "transB", 0)
            return 0 if weight is None or weight.ndim != 2 else int(weight.shape[0 if rows else 1])
        if node.op_type not in _BEHIND_HEAD:
            return 0
        name = next((source for source in node.input if source not in graph.constants), "")
    return 0


def _is_transpose(rows: Array, values: Array) -> bool:
    return np.array_equal(rows[0], values[:, 0]) and np.array_equal(rows, values.T)
