"""What ONNX Runtime makes of each op type between DequantizeLinear and QuantizeLinear; `kernel_times`, whether it pays.

`adapters/onnxrt/ops/units.py` follows this table: what becomes an integer kernel can be offered as int8, what does so
by itself needs a guard when it should stay float, and what only moves values about shares one scale.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from quaver.adapters.onnxrt.profile.kernels import INTEGER_KERNELS, optimised
from quaver.errors import BuildError

IMAGE, ROWS, BATCHED = (1, 4, 8, 8), (6, 8), (2, 6, 8)
_PLAIN = {"QuantizeLinear", "DequantizeLinear"}


def noise(*shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def ints(*values: int) -> NDArray[np.int64]:
    return np.array(values, np.int64)


# Op type, shapes of its dequantized inputs, its constants, its attributes; for two outputs, `outputs` among them.
CASES: list[tuple[str, list[tuple[int, ...]], list[Any], dict[str, Any]]] = [
    ("Conv", [IMAGE], [noise(8, 4, 3, 3), noise(8)], {}),
    ("ConvTranspose", [IMAGE], [noise(4, 8, 3, 3), noise(8)], {}),
    ("Gemm", [ROWS], [noise(8, 5), noise(5)], {}),
    ("Gemm", [ROWS, (8, 5)], [], {}),
    ("MatMul", [BATCHED], [noise(8, 5)], {}),
    ("MatMul", [BATCHED, (2, 8, 6)], [], {}),
    *((op, [IMAGE, IMAGE], [], {}) for op in ("Add", "Mul", "Sub", "Div", "Max", "Min", "Pow", "PRelu")),
    *((op, [IMAGE], [noise(4, 1, 1)], {}) for op in ("Add", "Mul")),
    ("Concat", [IMAGE, IMAGE], [], {"axis": 1}),
    ("Where", [IMAGE, IMAGE], [np.ones(IMAGE, bool)], {}),
    ("Einsum", [BATCHED, BATCHED], [], {"equation": "abc,adc->abd"}),
    *((op, [IMAGE], [], {"kernel_shape": [2, 2]}) for op in ("AveragePool", "MaxPool")),
    *((op, [IMAGE], [], {}) for op in ("GlobalAveragePool", "GlobalMaxPool", "Sigmoid", "LeakyRelu", "Softmax")),
    *((op, [IMAGE], [], {}) for op in ("LogSoftmax", "Relu", "HardSwish", "HardSigmoid", "Tanh", "Elu", "Erf", "Exp")),
    *((op, [IMAGE], [], {}) for op in ("ReduceMean", "ReduceMax", "ReduceSum", "Softplus", "Neg", "Abs", "Sqrt")),
    ("Clip", [IMAGE], [np.float32(0), np.float32(6)], {}),
    ("InstanceNormalization", [IMAGE], [noise(4), noise(4)], {}),
    ("LayerNormalization", [IMAGE], [noise(8), noise(8)], {}),
    *((op, [IMAGE], [], {}) for op in ("Identity", "Flatten", "Transpose", "Squeeze", "Dropout")),
    *((op, [IMAGE], [], {"blocksize": 2}) for op in ("DepthToSpace", "SpaceToDepth")),
    ("Reshape", [IMAGE], [ints(1, -1)], {}),
    ("Unsqueeze", [IMAGE], [ints(0)], {}),
    ("Slice", [IMAGE], [ints(0), ints(2), ints(1)], {}),
    ("Split", [IMAGE], [ints(2, 2)], {"axis": 1, "outputs": 2}),
    ("Gather", [IMAGE], [ints(0, 2)], {"axis": 1}),
    ("GatherElements", [IMAGE], [np.zeros(IMAGE, np.int64)], {}),
    ("Tile", [IMAGE], [ints(1, 1, 2, 1)], {}),
    ("Expand", [IMAGE], [ints(2, 4, 8, 8)], {}),
    ("Pad", [IMAGE], [ints(0, 0, 1, 1, 0, 0, 1, 1)], {}),
    *(("Resize", [IMAGE], [None, np.array([1, 1, 2, 2], np.float32)], {"mode": m}) for m in ("nearest", "linear")),
]


def sandwich(op: str, shapes: list[tuple[int, ...]], constants: list[Any], attributes: dict[str, Any]) -> bytes:
    """A model of one op whose inputs are dequantized and whose outputs are quantized."""
    attributes = dict(attributes)
    names = [f"y{i}" for i in range(attributes.pop("outputs", 1))]
    given = [f"x{i}" for i in range(len(shapes))]
    held = ["" if value is None else f"c{i}" for i, value in enumerate(constants)]
    by = ["scale", "zero"]
    inputs = [f"{name}.dq" for name in given]
    around = [("QuantizeLinear", "", ".q"), ("DequantizeLinear", ".q", ".dq")]
    pairs = {
        name: [helper.make_node(kind, [name + a, *by], [name + b]) for kind, a, b in around]
        for name in [*given, *names]
    }
    node = helper.make_node(op, [*held, *inputs] if op == "Where" else [*inputs, *held], names, name=op, **attributes)
    before, after = (itertools.chain.from_iterable(pairs[name] for name in part) for part in (given, names))
    initializers = {"scale": np.float32(0.02), "zero": np.uint8(128), **dict(zip(held, constants, strict=True))}
    graph = helper.make_graph(
        [*before, node, *after],
        "sandwich",
        [helper.make_tensor_value_info(*entry) for entry in zip(given, itertools.repeat(1), shapes, strict=False)],
        [helper.make_tensor_value_info(f"{name}.dq", onnx.TensorProto.FLOAT, None) for name in names],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in initializers.items() if name],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def verdict(case: tuple[str, list[tuple[int, ...]], list[Any], dict[str, Any]]) -> str:
    """What becomes of one op."""
    try:
        nodes = optimised(sandwich(*case)).graph.node
    except BuildError as error:
        return f"refused: {str(error).strip().splitlines()[-1][:80]}"
    kernels = [node.op_type for node in nodes if node.op_type not in _PLAIN]
    if any(kernel in INTEGER_KERNELS for kernel in kernels):
        return next(kernel for kernel in kernels if kernel in INTEGER_KERNELS)
    dequantized = sum(node.op_type == "DequantizeLinear" for node in nodes)
    outputs = case[3].get("outputs", 1)
    if dequantized == outputs:
        return "on uint8" if kernels else "vanishes"
    return "float, its weights quantized" if dequantized > outputs + len(case[1]) else "float"


if __name__ == "__main__":
    print(f"onnxruntime {ort.__version__}")
    for case in CASES:
        constant = f" and {sum(value is not None for value in case[2])} constant(s)" if case[2] else ""
        print(f"{case[0]:22} of {len(case[1])} activation(s){constant:18} -> {verdict(case)}")
