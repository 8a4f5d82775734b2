"""What each kernel costs in nanoseconds a value: in fp32, as the rewritten float graph computes it, and in int8.

    python -m benchmarks.kernel_costs [NAME...]

Each op is the only one of a model on [1, 64, 56, 56], or on what it works on. The form after the rewrites is the one
that the float graph of quaver gets. The int8 form works on tensors in 8 bits, without conversions (see
`benchmarks.kernel_times`). One thread, thread time, all forms of an op interleaved, the lower fifth.

Measure again with each version of the runtime: where a kernel has become faster, a rewrite may not pay
any more. The table stands in docs/kernels.md.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from benchmarks import kernel_times, result_files
from benchmarks.kernel_times import IMAGE, node
from quaver.adapters.onnxrt.load.model_file import load_model
from quaver.adapters.onnxrt.run import session as sessions
from quaver.errors import BuildError, ModelError

NAME = "kernel_costs"
OPSET = 22
ROUNDS = 60


@dataclass
class Op:
    """An op: its nodes from `x` (and `x1`) to `y`, and what else they read.

    Attributes:
        nodes: the nodes.
        constants: by name, what they read beside the inputs.
        shape: the shape of `x` and `x1`.
        inputs: how many inputs there are.
        int8: the name of its int8 form in `benchmarks.kernel_times`; empty if it has none.
    """

    nodes: Sequence[NodeProto]
    constants: dict[str, Any] = field(default_factory=dict)
    shape: tuple[int, ...] = IMAGE
    inputs: int = 1
    int8: str = ""


def one(kind: str, *more: str, int8: str = "", shape: tuple[int, ...] = IMAGE, **attributes: Any) -> Op:
    """An op of one node that reads `x` and these constants."""
    constants = {name: CONSTANTS[name] for name in more if name in CONSTANTS}
    inputs = 1 + ("x1" in more)
    return Op([node(kind, ["x", *more], ["y"], **attributes)], constants, shape, inputs, int8)


RNG = np.random.default_rng(0)
CONSTANTS: dict[str, Any] = {
    "slope": np.float32(0.1), "slopes": RNG.uniform(0.1, 0.3, (64, 1, 1)).astype(np.float32), "low": np.float32(-1),
    "high": np.float32(1), "half": np.float32(0.5), "two": np.float32(2), "three": np.float32(3),
    "four": np.float32(4), "1.7": np.float32(1.7), "channels": RNG.normal(size=(64, 1, 1)).astype(np.float32),
    "by": np.array([1, 1, 2, 2], np.float32), "places": np.array([2, 3]), "last": np.array([-1]),
    "gamma": np.ones(64, np.float32), "beta": np.zeros(64, np.float32), "wide": np.ones(56, np.float32),
    "scale": np.float32(0.02), "zero": np.uint8(128), "around": np.array([0, 0, 1, 1, 0, 0, 1, 1]),
    "tall": RNG.normal(size=(64, 1, 64, 1)).astype(np.float32),
    "long": RNG.normal(size=(64, 16, 64)).astype(np.float32),
}  # fmt: skip

OPS: dict[str, Op] = {
    **{kind: one(kind) for kind in ("Abs", "Celu", "Cos", "Elu", "Erf", "Exp", "Floor", "HardSigmoid", "HardSwish")},
    **{kind: one(kind) for kind in ("Log", "Mish", "Neg", "Reciprocal", "Round", "Selu", "Sign", "Sin", "Softplus")},
    **{kind: one(kind) for kind in ("Softsign", "Sqrt", "ThresholdedRelu")},
    "Relu": one("Relu", int8="Relu"),
    "Sigmoid": one("Sigmoid", int8="Sigmoid"),
    "Tanh": one("Tanh", int8="Tanh as a table"),
    "LeakyRelu": one("LeakyRelu", int8="LeakyRelu", alpha=0.1),
    "Clip": one("Clip", "low", "high", int8="Clip"),
    "PRelu, one slope": one("PRelu", "slope"),
    "PRelu, a slope for each channel": one("PRelu", "slopes"),
    "Gelu": one("Gelu", int8="Gelu as a table"),
    "Gelu, tanh": one("Gelu", approximate="tanh"),
    "SiLU": Op([node("Sigmoid", ["x"], ["s"]), node("Mul", ["x", "s"], ["y"])]),
    "Pow 0.5": one("Pow", "half"),
    "Pow 2": one("Pow", "two"),
    "Pow 3": one("Pow", "three"),
    "Pow 4": one("Pow", "four"),
    "Pow 1.7": one("Pow", "1.7"),
    "Add": one("Add", "x1", int8="Add"),
    "Sub": one("Sub", "x1"),
    "Mul": one("Mul", "x1", int8="Mul"),
    "Div": one("Div", "x1"),
    "Max": one("Max", "x1", int8="Max of two, one scale"),
    "Add of channels": one("Add", "channels"),
    "Mul of channels": one("Mul", "channels"),
    "Concat": one("Concat", "x1", axis=1, int8="Concat"),
    "Transpose": one("Transpose", perm=[0, 2, 3, 1], int8="Transpose"),
    "Pad": one("Pad", "around", int8="Pad, zeros"),
    "Resize, nearest": one("Resize", "", "by", int8="Resize, nearest"),
    "Resize, linear": one("Resize", "", "by", mode="linear", int8="Resize, linear"),
    "Softmax over the last axis": one("Softmax", int8="Softmax"),
    "Softmax over channels": one("Softmax", axis=1),
    "LogSoftmax over channels": one("LogSoftmax", axis=1),
    "ReduceMean over places": one("ReduceMean", "places", int8="ReduceMean as GlobalAveragePool"),
    "ReduceMean over the last axis": one("ReduceMean", "last"),
    "GlobalAveragePool": one("GlobalAveragePool", int8="GlobalAveragePool"),
    "MaxPool 3 x 3": one("MaxPool", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    "MaxPool 5 x 5": one("MaxPool", kernel_shape=[5, 5], pads=[2, 2, 2, 2]),
    "AveragePool 3 x 3": one("AveragePool", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    "BatchNormalization": one("BatchNormalization", "gamma", "beta", "beta", "gamma"),
    "InstanceNormalization": one("InstanceNormalization", "gamma", "beta"),
    "LayerNormalization": one("LayerNormalization", "wide", "wide"),
    "QuantizeLinear": one("QuantizeLinear", "scale", "zero"),
    "Conv 64 x 1 on one column": one("Conv", "tall", shape=(1, 1, 4096, 1), strides=[4, 1]),
    "Conv of 64 taps on a signal": one("Conv", "long", shape=(1, 16, 1024), strides=[2]),
}


def as_given(op: Op) -> onnx.ModelProto:
    """The model of an op. A product beside it gives the rewrites something that can be quantized."""
    inputs = [helper.make_tensor_value_info(f"x{i or ''}", TensorProto.FLOAT, op.shape) for i in range(op.inputs)]
    kind = TensorProto.UINT8 if op.nodes[-1].op_type == "QuantizeLinear" else TensorProto.FLOAT
    constants = [numpy_helper.from_array(np.asarray(value), name) for name, value in op.constants.items()]
    outputs = [helper.make_tensor_value_info("y", kind, None)]
    graph = helper.make_graph(list(op.nodes), "op", inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)


def rewritten(op: Op) -> tuple[onnx.ModelProto | None, str]:
    """The float model after the rewrites, and their names; None if none applies."""
    try:
        loaded = load_model(as_given(op))
    except ModelError:  # it quantizes
        return None, ""
    names = ", ".join(name for name, _ in loaded.rewritten.applied)
    if not names:
        return None, ""
    graph = loaded.graph
    model = onnx.ModelProto()
    model.CopyFrom(graph.shell)
    model.graph.node.extend(graph.nodes)
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(v), k) for k, v in graph.constants.items())
    return model, names


def seconds(models: dict[str, bytes], op: Op) -> dict[str, float]:
    """Return the seconds of an inference of each model, by its name; those in int8 get integers."""
    feeds = {
        "int8": {f"x{i}": RNG.integers(0, 256, op.shape).astype(np.uint8) for i in range(op.inputs)},
        "fp32": {f"x{i or ''}": RNG.normal(size=op.shape).astype(np.float32) for i in range(op.inputs)},
    }
    feeds["rewritten"] = feeds["fp32"]
    opened = {name: sessions.create(source, sessions.options(1)) for name, source in models.items()}
    taken: dict[str, list[float]] = {name: [] for name in models}
    for _ in range(ROUNDS):
        for name, session in opened.items():
            start = time.thread_time()
            session.run(None, feeds[name])
            taken[name].append(time.thread_time() - start)
    return {name: float(np.quantile(times, 0.2)) for name, times in taken.items()}


def measure(name: str, op: Op) -> dict[str, Any]:
    """Return the row of an op: nanoseconds for each value that it reads from one input."""
    models = {"fp32": as_given(op).SerializeToString()}
    other, names = rewritten(op)
    if other is not None:
        models["rewritten"] = other.SerializeToString()
    if op.int8:
        models["int8"] = kernel_times.forms(kernel_times.CASES[op.int8])["int8 int8"]
    values = float(np.prod(op.shape))
    row: dict[str, Any] = {"op": name, "rewrite": names}
    try:
        row |= {form: round(1e9 * taken / values, 3) for form, taken in seconds(models, op).items()}
    except (BuildError, ModelError) as error:
        row["error"] = str(error).strip().splitlines()[0][:120]
    return row


def main() -> None:
    """Measure the ops that are named, or all, and write them to the result file."""
    rows = []
    for name in sys.argv[1:] or OPS:
        rows.append(measure(name, OPS[name]))
        print(rows[-1], flush=True)
    result_files.write(NAME, "Nanoseconds a value of each kernel", rows, replaces=["op"])


if __name__ == "__main__":
    main()
