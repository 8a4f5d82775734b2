"""Write docs/supported.md, a table of the choices of each op type: python docs/supported.py

The adapters themselves answer, so the page agrees with the code.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from quaver.adapters import AdapterOptions, load_model
from quaver.ops import DETAILS, OpConfig

PAGE = Path(__file__).with_name("supported.md")
HEAD = """\
# Supported ops

This page lists which op types quaver can quantize, and with which choices. Use it to see what to expect for a model, or
which values a rule may use. `make docs` writes it by asking the adapters. For your own model, ask `adapter.ops()`:

```python
from quaver.adapters import AdapterOptions, load_model

for op in load_model("model.onnx", AdapterOptions()).ops():
    print(op.name, op.kind, *op.choices, sep=" | ")
```

An op type belongs to one of three groups:

- **Offered**: [rules](rules.md) and strategies can choose its precision.
- **Passthrough**: it has no choice of its own. It runs in int8 if it is between int8 ops.
- **Always float**: `result.unquantizable` names these ops, with their share of the latency.
"""
ONNX = """\
## ONNX Runtime

Each op type was placed between two int8 ops, a convolution or a matrix product. "Default" is the choice in the default
configuration. [Kernels](kernels.md) describes the integer kernels and what they bring. Two more rules apply:

- An op that adds or multiplies just before a Softmax stays float, because attention masks contain values that leave the
  scores no steps.
- Relu and Clip after a Conv, Gemm or Add, and the bias Add after a MatMul, are part of that op. BatchNormalization, a
  Pad with zeros before a Conv, and a HardSigmoid after a Conv are folded into it.
"""
LITERT = """\
## LiteRT (TensorFlow, Keras, .tflite)

Types are LiteRT's. [TensorFlow](tensorflow.md#which-ops) explains why some are fp32 by default. Activations are
asymmetric and weights symmetric. Calibration is minmax, percentile or entropy.
"""
Case = tuple[str, list[tuple[int, ...]], list[Any], dict[str, Any]]
IMAGE, ROWS, WORDS = (1, 4, 8, 8), (6, 8), (2, 6, 8)
BEFORE, ASKED, BEHIND = "before", "asked", "behind"


def _noise(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def _ints(*values: int) -> Any:
    return np.array(values, np.int64)


# Op type, with its variant if that matters: shapes of its activations, its constants, its attributes.
CASES: dict[str, Case] = {
    "Conv": ("Conv", [IMAGE], [_noise(4, 4, 3, 3), _noise(4)], {}),
    "ConvTranspose": ("ConvTranspose", [IMAGE], [_noise(4, 4, 3, 3)], {}),
    "Gemm": ("Gemm", [ROWS], [_noise(8, 8), _noise(8)], {}),
    "MatMul with a weight": ("MatMul", [WORDS], [_noise(8, 8)], {}),
    "MatMul of two activations": ("MatMul", [WORDS, (2, 8, 6)], [], {}),
    "Gather in a table of 16,384 numbers or more": ("Gather", [], [_noise(512, 32)], {}),
    **{f"{op} of two activations": (op, [IMAGE, IMAGE], [], {}) for op in ("Add", "Mul", "Sub", "Div", "Max", "Pow")},
    **{f"{op} with a number": (op, [IMAGE], [np.float32(0.5)], {}) for op in ("Max", "Min")},
    "Concat": ("Concat", [IMAGE, IMAGE], [], {"axis": 1}),
    "Where of two activations": ("Where", [IMAGE, IMAGE], [np.ones(IMAGE, bool)], {}),
    **{op: (op, [IMAGE], [], {"kernel_shape": [2, 2]}) for op in ("AveragePool", "MaxPool")},
    **{op: (op, [IMAGE], [], {}) for op in ("GlobalAveragePool", "GlobalMaxPool")},
    "ReduceMean over all places of an image": ("ReduceMean", [IMAGE], [_ints(2, 3)], {"keepdims": 1}),
    **{op: (op, [IMAGE], [_ints(2, 3)], {}) for op in ("ReduceMax", "ReduceMin", "ReduceSum")},
    **{op: (op, [IMAGE], [], {}) for op in ("Sigmoid", "LeakyRelu", "HardSwish", "Gelu", "Softmax")},
    **{op: (op, [IMAGE], [], {}) for op in ("Tanh", "Elu", "Erf", "Exp", "Sqrt", "Abs", "Neg", "Softplus")},
    "PRelu": ("PRelu", [IMAGE], [_noise(4, 1, 1)], {}),
    "LayerNormalization": ("LayerNormalization", [IMAGE], [_noise(8), _noise(8)], {}),
    "InstanceNormalization": ("InstanceNormalization", [IMAGE], [_noise(4), _noise(4)], {}),
    "Pad": ("Pad", [IMAGE], [_ints(0, 0, 1, 1, 0, 0, 1, 1)], {"mode": "reflect"}),
    "SpaceToDepth": ("SpaceToDepth", [IMAGE], [], {"blocksize": 2}),
    "DepthToSpace": ("DepthToSpace", [IMAGE], [], {"blocksize": 2}),
    "Flatten": ("Flatten", [IMAGE], [], {}),
    "Transpose": ("Transpose", [IMAGE], [], {"perm": [0, 1, 3, 2]}),
    "Reshape": ("Reshape", [IMAGE], [_ints(1, 8, 4, 8)], {}),
    "Unsqueeze": ("Unsqueeze", [IMAGE], [_ints(0)], {}),
    "Slice": ("Slice", [IMAGE], [_ints(0), _ints(2), _ints(1)], {}),
    "Split": ("Split", [IMAGE], [_ints(2, 2)], {"axis": 1}),
    "Gather of an activation": ("Gather", [IMAGE], [_ints(0, 2)], {"axis": 1}),
    "Tile": ("Tile", [IMAGE], [_ints(1, 1, 2, 1)], {}),
    "Expand": ("Expand", [IMAGE], [_ints(2, 4, 8, 8)], {}),
    "Resize (nearest)": ("Resize", [IMAGE], [None, np.array([1, 1, 2, 2], np.float32)], {"mode": "nearest"}),
    "Resize (linear)": ("Resize", [IMAGE], [None, np.array([1, 1, 2, 2], np.float32)], {"mode": "linear"}),
    "Einsum": ("Einsum", [WORDS, WORDS], [], {"equation": "abc,adc->abd"}),
    "LSTM": ("LSTM", [WORDS], [_noise(1, 32, 8), _noise(1, 32, 8)], {"hidden_size": 8}),
    "GRU": ("GRU", [WORDS], [_noise(1, 24, 8), _noise(1, 24, 8)], {"hidden_size": 8}),
}


def page() -> str:
    """Return the page as text."""
    return "\n".join([HEAD, ONNX, _onnx_table(), LITERT, *_litert_tables()])


def _onnx_table() -> str:
    rows: dict[str, list[str]] = {"offered": [], "passthrough": [], "always float": []}
    for label, case in CASES.items():
        adapter = load_model(_sandwich(*case), AdapterOptions())
        op = next((op for op in adapter.ops() if not op.name.startswith((BEFORE, BEHIND))), None)
        if op is not None:
            name = label if op.kind == case[0] else f"{label}, as {op.kind}"
            rows["offered"].append(f"| {name} | {op.choices[0]} | {_values(op.choices)} |")
        elif any(node.kind == case[0] for node in adapter.unquantizable()):
            rows["always float"].append(label)
        else:
            rows["passthrough"].append(label)
    table = ["| offered | default | choices |", "|---|---|---|", *rows.pop("offered")]
    lists = [f"\n**{name.capitalize()}**: {', '.join(labels)}." for name, labels in rows.items()]
    return "\n".join([*table, *lists, ""])


def _values(choices: Sequence[OpConfig]) -> str:
    """Return the values of each field of the choices."""
    quantized = [choice for choice in choices if choice.quantized]
    parts = [sorted({str(choice.precision) for choice in choices})]
    parts += [list(dict.fromkeys(getattr(choice, field) for choice in quantized)) for field in DETAILS]
    return "; ".join(", ".join(values) for part in parts if (values := [value for value in part if value]))


def _sandwich(kind: str, shapes: list[tuple[int, ...]], constants: list[Any], attributes: dict[str, Any]) -> bytes:
    """Return a model with the op between ops that compute in int8."""
    names = ["" if value is None else f"c{at}" for at, value in enumerate(constants)]
    named = zip(names, constants, strict=True)
    initializers = [numpy_helper.from_array(np.asarray(value), name) for name, value in named if name]
    nodes, inputs, activations = [], [], []
    for at, shape in enumerate(shapes):
        weight, op = (_noise(4, 4, 1, 1), "Conv") if len(shape) == 4 else (_noise(shape[-1], shape[-1]), "MatMul")
        initializers.append(numpy_helper.from_array(weight, f"w{at}"))
        inputs.append(helper.make_tensor_value_info(f"x{at}", TensorProto.FLOAT, shape))
        nodes.append(helper.make_node(op, [f"x{at}", f"w{at}"], [f"a{at}"], f"{BEFORE}{at}" if at else BEFORE))
        activations.append(f"a{at}")
    if not shapes:  # indices of rows of a table
        inputs.append(helper.make_tensor_value_info("x0", TensorProto.INT64, (2, 6)))
        names.append("x0")
    first = [names.pop(0)] if kind == "Where" else []  # its condition
    outputs = ["y", "z"] if kind == "Split" else ["y"]
    nodes.append(helper.make_node(kind, [*first, *activations, *names], outputs, ASKED, **attributes))
    graph = helper.make_graph(nodes, "sandwich", inputs, [_untyped("y")], initializers)
    shape = _shape(graph)
    weight = _noise(4, shape[1], 1, 1) if len(shape) == 4 else _noise(shape[-1], 4)
    graph.initializer.append(numpy_helper.from_array(weight, "w"))
    graph.node.append(helper.make_node("Conv" if len(shape) == 4 else "MatMul", ["y", "w"], ["out"], BEHIND))
    graph.output[0].CopyFrom(_untyped("out"))
    return _model(graph).SerializeToString()


def _shape(graph: onnx.GraphProto) -> list[int]:
    """Return the output shape that ONNX infers."""
    inferred = onnx.shape_inference.infer_shapes(_model(graph)).graph.output[0]
    return [dim.dim_value for dim in inferred.type.tensor_type.shape.dim]


def _untyped(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, None)


def _model(graph: onnx.GraphProto) -> onnx.ModelProto:
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def _litert_tables() -> Iterator[str]:
    from quaver.adapters.litert.ops import units

    def listed(kinds: Iterable[str]) -> str:
        return ", ".join(sorted(kind for kind in kinds if kind in units.QUANTIZER_NAMES))

    yield "| | op types |\n|---|---|"
    yield f"| int8 by default | {listed({*units._WITH_WEIGHT, *units._ELEMENTWISE, *units._OTHER_KINDS})} |"
    others = "BATCH_MATMUL of two activations, arithmetic of a normalization"
    yield f"| offered, but fp32 by default | {listed(units._SLOW)}, {others} |"
    yield f"| one scale per channel or per tensor | {listed(units._CHANNELS)} |"
    yield f"| passthrough | {listed(units._MOVEMENT)} |"
    yield "| always float | all others, including SOFTMAX and an op that adds or multiplies just before it |\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
