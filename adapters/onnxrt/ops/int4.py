"""Four-bit weights: which ones have a kernel that reads them in blocks.

`MatMulNBits` and `GatherBlockQuantized` are operators of ONNX Runtime's own.
"""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
import onnxruntime as ort
from onnx import NodeProto, TensorProto, helper, numpy_helper

from quaver.adapters.onnxrt.load.graph import Graph, integer
from quaver.ops import INT4, PER_BLOCK, Op, OpConfig
from quaver.types import Array

# How many numbers share a scale and a zero point: 4.6 bits a number. With 32 it would be 5.1 bits and 0.8 of the error,
# with 128 4.3 bits and 1.2 times the error.
BLOCK = 64
# Judgement: a smaller weight saves too little to be worth a decision.
ELEMENTS = 2**12

INT4_PER_BLOCK = OpConfig(INT4, granularity=PER_BLOCK, mode="weight_only")


def offer_int4(graph: Graph, op: Op, node: NodeProto, weight: str) -> Op:
    """Return the op with a four-bit choice for its weight, for size, if a kernel reads it so.

    A weight that others read too is not offered: it would be stored once more.
    """
    if weight in graph.captured or len(graph.consumers.get(weight, ())) > 1:
        return op
    return replace(op, smaller=(INT4_PER_BLOCK,)) if _fits(graph, node, graph.constants[weight].shape) else op


def _fits(graph: Graph, node: NodeProto, shape: tuple[int, ...]) -> bool:
    if len(shape) != 2 or shape[0] * shape[1] < ELEMENTS:
        return False
    if node.op_type == "Gather":
        # Rows that end within a block are read wrongly by kernels other than the CPU's.
        return integer(node, "axis", 0) % 2 == 0 and shape[1] % BLOCK == 0 and _looks_up_blocks()
    transposed = node.op_type == "Gemm" and integer(node, "transB", 0)
    return shape[1 if transposed else 0] >= BLOCK


@functools.cache
def _looks_up_blocks() -> bool:
    """Return True if this version of ONNX Runtime looks up rows in blocks with zero points; older ones do not."""
    constants: dict[str, Array] = {
        "rows": np.zeros((1, BLOCK // 2), np.uint8),
        "scales": np.ones((1, 1), np.float32),
        "zeros": np.zeros((1, 1), np.uint8),
    }
    inputs = [helper.make_tensor_value_info("index", TensorProto.INT64, [1])]
    outputs = [helper.make_tensor_value_info("found", TensorProto.FLOAT, None)]
    node = helper.make_node(
        "GatherBlockQuantized", ["rows", "index", "scales", "zeros"], ["found"], domain="com.microsoft",
        gather_axis=0, quantize_axis=1, block_size=BLOCK, bits=4,
    )  # fmt: skip
    graph = helper.make_graph(
        [node], "", inputs, outputs, [numpy_helper.from_array(array, name) for name, array in constants.items()]
    )
    domains = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    options = ort.SessionOptions()
    options.log_severity_level = 4
    try:
        model = helper.make_model(graph, opset_imports=domains, ir_version=8).SerializeToString()
        rows = ort.InferenceSession(model, options).run(None, {"index": np.zeros(1, np.int64)})[0]
    except Exception:
        return False
    return bool(rows.shape == (1, BLOCK))
