"""Write docs/supported.md, what becomes of each op type, by asking the adapters: python docs/supported.py"""

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

Written by `make docs`, which asks the adapters. `adapter.ops()` tells the same of your model:

```python
from quaver.adapters import AdapterOptions, load_model

for op in load_model("model.onnx", AdapterOptions()).ops():
    print(op.name, op.kind, *op.choices, sep=" | ")
```

What is on offer is an op that [rules](rules.md) and strategies can switch. What follows along is no decision: it runs
in 8 bits where it stands between int8 ops. What stays float is named by `result.unquantizable` with its share of the
time.
"""
ONNX = """\
## ONNX Runtime

Each op type was put between two ops that compute in int8, a convolution or a product. "First choice" is how it runs in
the all-int8 model. [kernels.md](kernels.md) tells which kernels these are and what they bring. Two more rules hold:

- What is added or multiplied just before a Softmax stays float: attention masks hold numbers that leave the scores no
  steps.
- Relu and Clip behind a Conv, Gemm or Add, and the bias Add behind a MatMul, are part of that op. BatchNormalization, a
  Pad with zeros before a Conv and a HardSigmoid behind one are folded into it.
"""
LITERT = """\
## LiteRT (TensorFlow, Keras, .tflite)

Types are LiteRT's. [tensorflow.md](tensorflow.md#which-ops) tells why some are fp32 by default. Activations are
asymmetric and weights symmetric; calibration is minmax, percentile or entropy.
"""
Case = tuple[str, list[tuple[int, ...]], list[Any], dict[str, Any]]
IMAGE, ROWS, WORDS = (1, 4, 8, 8), (6, 8), (2, 6, 8)
BEFORE, ASKED, BEHIND = "before", "asked", "behind"


def _noise(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def _ints(*values: int) -> Any:
    return np.array(values, np.int64)


# Op type, with what sets it apart where that matters: shapes of its activations, its constants, its attributes.
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
    """The whole page."""
    return "\n".join([HEAD, ONNX, _onnx_table(), LITERT, *_litert_tables()])


def _onnx_table() -> str:
    rows: dict[str, list[str]] = {"on offer": [], "follows along": [], "stays float": []}
    for label, case in CASES.items():
        adapter = load_model(_sandwich(*case), AdapterOptions())
        found = next((op for op in adapter.ops() if not op.name.startswith((BEFORE, BEHIND))), None)
        if found is not None:
            spelled = label if found.kind == case[0] else f"{label}, as {found.kind}"
            rows["on offer"].append(f"| {spelled} | {found.choices[0]} | {_ways(found.choices)} |")
        elif any(one.kind == case[0] for one in adapter.unquantizable()):
            rows["stays float"].append(label)
        else:
            rows["follows along"].append(label)
    table = ["| on offer | first choice | ways |", "|---|---|---|", *rows.pop("on offer")]
    told = [f"\n**{name.capitalize()}**: {', '.join(labels)}." for name, labels in rows.items()]
    return "\n".join([*table, *told, ""])


def _ways(choices: Sequence[OpConfig]) -> str:
    """What can be chosen, field by field."""
    quantized = [choice for choice in choices if choice.quantized]
    parts = [sorted({str(choice.precision) for choice in choices})]
    parts += [list(dict.fromkeys(getattr(choice, field) for choice in quantized)) for field in DETAILS]
    return "; ".join(", ".join(values) for part in parts if (values := [value for value in part if value]))


def _sandwich(kind: str, shapes: list[tuple[int, ...]], constants: list[Any], attributes: dict[str, Any]) -> bytes:
    """A model of the op between ops that compute in int8."""
    names = ["" if value is None else f"c{at}" for at, value in enumerate(constants)]
    given = zip(names, constants, strict=True)
    held = [numpy_helper.from_array(np.asarray(value), name) for name, value in given if name]
    nodes, inputs, read = [], [], []
    for at, shape in enumerate(shapes):
        weight, op = (_noise(4, 4, 1, 1), "Conv") if len(shape) == 4 else (_noise(shape[-1], shape[-1]), "MatMul")
        held.append(numpy_helper.from_array(weight, f"w{at}"))
        inputs.append(helper.make_tensor_value_info(f"x{at}", TensorProto.FLOAT, shape))
        nodes.append(helper.make_node(op, [f"x{at}", f"w{at}"], [f"a{at}"], f"{BEFORE}{at}" if at else BEFORE))
        read.append(f"a{at}")
    if not shapes:  # rows of a table, by numbers
        inputs.append(helper.make_tensor_value_info("x0", TensorProto.INT64, (2, 6)))
        names.append("x0")
    first = [names.pop(0)] if kind == "Where" else []  # its condition
    written = ["y", "z"] if kind == "Split" else ["y"]
    nodes.append(helper.make_node(kind, [*first, *read, *names], written, ASKED, **attributes))
    graph = helper.make_graph(nodes, "one", inputs, [_anything("y")], held)
    shape = _shape(graph)
    weight = _noise(4, shape[1], 1, 1) if len(shape) == 4 else _noise(shape[-1], 4)
    graph.initializer.append(numpy_helper.from_array(weight, "w"))
    graph.node.append(helper.make_node("Conv" if len(shape) == 4 else "MatMul", ["y", "w"], ["out"], BEHIND))
    graph.output[0].CopyFrom(_anything("out"))
    return _model(graph).SerializeToString()


def _shape(graph: onnx.GraphProto) -> list[int]:
    """Of the output, as ONNX infers it."""
    inferred = onnx.shape_inference.infer_shapes(_model(graph)).graph.output[0]
    return [one.dim_value for one in inferred.type.tensor_type.shape.dim]


def _anything(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, None)


def _model(graph: onnx.GraphProto) -> onnx.ModelProto:
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def _litert_tables() -> Iterator[str]:
    from quaver.adapters.litert.ops import units

    def listed(kinds: Iterable[str]) -> str:
        return ", ".join(sorted(kind for kind in kinds if kind in units.KEYS))

    yield "| | op types |\n|---|---|"
    yield f"| int8 by default | {listed({*units._WEIGHTY, *units._ELEMENTWISE, *units._PLAIN})} |"
    besides = "BATCH_MATMUL of two activations, arithmetic of a normalisation"
    yield f"| on offer, fp32 by default | {listed(units._SLOW)}, {besides} |"
    yield f"| of these with one scale per channel or per tensor | {listed(units._CHANNELS)} |"
    yield f"| follow along | {listed(units._MOVEMENT)} |"
    yield "| stay float | all others, SOFTMAX and what is added or multiplied just before it among them |\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
