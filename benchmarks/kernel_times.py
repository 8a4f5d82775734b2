"""What an op costs between int8 neighbours and between float ones: in float, with conversions, and in 8 bits.

    python -m benchmarks.kernel_times [NAME...]

`benchmarks.kernels` tells what ONNX Runtime makes of an op between DequantizeLinear and QuantizeLinear; this, whether
it pays. One thread, thread time, interleaved forms, the lower fifth. docs/kernels.md has the table.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnxruntime as ort
from onnx import NodeProto, TensorProto, helper, numpy_helper

from quaver.adapters.onnxrt.profile.kernels import optimised
from quaver.adapters.onnxrt.run import session as sessions
from quaver.errors import BuildError

IMAGE = (1, 64, 56, 56)
SCALE, ZERO = np.float32(0.02), np.uint8(128)
ROUNDS = 25

Nodes = Callable[[Sequence[str]], list[NodeProto]]
node = helper.make_node


@dataclass
class Case:
    """An op: how it makes "y" of float tensors, and "yq" of tensors in 8 bits."""

    real: Nodes
    integers: Nodes
    constants: dict[str, Any] = field(default_factory=dict)
    inputs: int = 1


def plain(op: str, *constants: str, first: bool = False, **attributes: Any) -> Nodes:
    """The op on float."""
    return lambda x: [node(op, [*constants, *x] if first else [*x, *constants], ["y"], **attributes)]


def direct(op: str, *constants: str, **attributes: Any) -> Nodes:
    """An op on integers."""
    return lambda x: [node(op, [*x, *constants], ["yq"], **attributes)]


def fused(op: str, *constants: str, first: bool = False, **attributes: Any) -> Nodes:
    """The op between DequantizeLinear and QuantizeLinear, for the optimiser to make one kernel of."""

    def made(x: Sequence[str]) -> list[NodeProto]:
        real = [f"{name}_dq" for name in x]
        inputs = [*constants, *real] if first else [*real, *constants]
        return [
            *(node("DequantizeLinear", [name, "scale", "zero"], [f"{name}_dq"]) for name in x),
            node(op, inputs, ["y_real"], **attributes),
            node("QuantizeLinear", ["y_real", "scale", "zero"], ["yq"]),
        ]

    return made


def with_number(op: str) -> Nodes:
    """An Add or Mul with a constant in 8 bits."""

    def made(x: Sequence[str]) -> list[NodeProto]:
        return [
            node("DequantizeLinear", ["c8", "c_scale", "c_zero"], ["c_dq"]),
            *fused(op, "c_dq")(x),
        ]

    return made


def table(op: str) -> Case:
    """Any function of one tensor, looked up by its 256 integers."""
    looked_up: Nodes = lambda x: [  # noqa: E731
        node("Cast", list(x), ["index"], to=TensorProto.INT32),
        node("Gather", ["table", "index"], ["yq"]),
    ]
    return Case(plain(op), looked_up, {"table": np.arange(256, dtype=np.uint8)})


AROUND = {"pads": np.array([0, 0, 1, 1, 0, 0, 1, 1])}
TWICE = {"by": np.array([1, 1, 2, 2], np.float32)}
PLACES = {"axes": np.array([2, 3])}
NUMBER = {"c": np.float32(0.3), "c8": np.uint8(255), "c_scale": np.float32(0.3 / 255), "c_zero": np.uint8(0)}
BOUNDS = {"low": np.float32(-1), "high": np.float32(1), "low8": np.uint8(78), "high8": np.uint8(178)}
MASK = {"mask": np.random.default_rng(0).random(IMAGE) > 0.5}

CASES: dict[str, Case] = {
    "Pad, zeros": Case(plain("Pad", "pads"), direct("Pad", "pads", "zero"), AROUND),
    "Pad, reflect": Case(plain("Pad", "pads", mode="reflect"), direct("Pad", "pads", mode="reflect"), AROUND),
    "Relu": Case(plain("Relu"), direct("Clip", "zero")),
    "Relu as LeakyRelu of 0": Case(plain("Relu"), fused("LeakyRelu", alpha=0.0)),
    "Clip": Case(plain("Clip", "low", "high"), direct("Clip", "low8", "high8"), BOUNDS),
    "Max with a number": Case(plain("Max", "low"), direct("Clip", "low8"), BOUNDS),
    "GlobalMaxPool": Case(plain("GlobalMaxPool"), direct("ReduceMax", "axes"), PLACES),
    "ReduceMax": Case(plain("ReduceMax", "axes"), direct("ReduceMax", "axes"), PLACES),
    "SpaceToDepth": Case(plain("SpaceToDepth", blocksize=2), direct("SpaceToDepth", blocksize=2)),
    "Where": Case(plain("Where", "mask", first=True), fused("Where", "mask", first=True), MASK, 2),
    "Add with a number": Case(plain("Add", "c"), with_number("Add"), NUMBER),
    "Mul with a number": Case(plain("Mul", "c"), with_number("Mul"), NUMBER),
    "Add": Case(plain("Add"), fused("Add"), inputs=2),
    "Mul": Case(plain("Mul"), fused("Mul"), inputs=2),
    "Concat": Case(plain("Concat", axis=1), fused("Concat", axis=1), inputs=2),
    "Split": Case(
        lambda x: [node("Split", [*x, "halves"], ["y", "rest"], axis=1)],
        lambda x: [node("Split", [*x, "halves"], ["yq", "rest"], axis=1)],
        {"halves": np.array([32, 32])},
    ),
    "LeakyRelu": Case(plain("LeakyRelu", alpha=0.1), fused("LeakyRelu", alpha=0.1)),
    "Sigmoid": Case(plain("Sigmoid"), fused("Sigmoid")),
    "Tanh by the kernel of Sigmoid": Case(plain("Tanh"), fused("Sigmoid")),
    "Tanh as a table": table("Tanh"),
    "Gelu as a table": table("Gelu"),
    "Softmax": Case(plain("Softmax"), fused("Softmax")),
    "GlobalAveragePool": Case(plain("GlobalAveragePool"), fused("GlobalAveragePool")),
    "ReduceMean as GlobalAveragePool": Case(plain("ReduceMean", "axes"), fused("GlobalAveragePool"), PLACES),
    "Transpose": Case(plain("Transpose", perm=[0, 2, 3, 1]), direct("Transpose", perm=[0, 2, 3, 1])),
    "DepthToSpace": Case(plain("DepthToSpace", blocksize=2), direct("DepthToSpace", blocksize=2)),
    "Resize, nearest": Case(plain("Resize", "", "by"), direct("Resize", "", "by"), TWICE),
    "Resize, linear": Case(plain("Resize", "", "by", mode="linear"), direct("Resize", "", "by", mode="linear"), TWICE),
    "Max of two, one scale": Case(plain("Max"), direct("Max"), inputs=2),
}


def model(nodes: Sequence[NodeProto], case: Case, kind: int, output: str) -> bytes:
    inputs = [helper.make_tensor_value_info(f"x{i}", kind, IMAGE) for i in range(case.inputs)]
    values = {"scale": SCALE, "zero": ZERO, **case.constants}
    read = {name for one in nodes for name in one.input}
    graph = helper.make_graph(
        list(nodes),
        "form",
        inputs,
        [helper.make_tensor_value_info(output, kind, None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in values.items() if name in read],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    return bytes(made.SerializeToString())


def forms(case: Case) -> dict[str, bytes]:
    """The op in float and in 8 bits, between neighbours of either kind. A guard keeps the optimiser from fusing."""
    given = [f"x{i}" for i in range(case.inputs)]
    back = [node("DequantizeLinear", [name, "scale", "zero"], [f"{name}_f"]) for name in given]
    guards = [node("Max", [f"{name}_f"], [f"{name}_g"]) for name in given]
    to = [node("QuantizeLinear", [name, "scale", "zero"], [f"{name}_q"]) for name in given]
    real = case.real([f"{name}_g" for name in given])
    ending = [node("QuantizeLinear", ["y", "scale", "zero"], ["yq"])]
    returning = [node("DequantizeLinear", ["yq", "scale", "zero"], ["y"])]
    return {
        "int8 float": model([*back, *guards, *real, *ending], case, TensorProto.UINT8, "yq"),
        "int8 int8": model(case.integers(given), case, TensorProto.UINT8, "yq"),
        "float float": model(case.real(given), case, TensorProto.FLOAT, "y"),
        "float int8": model([*to, *case.integers([f"{x}_q" for x in given]), *returning], case, TensorProto.FLOAT, "y"),
    }


def seconds(made: dict[str, bytes], inputs: int) -> dict[str, float]:
    """What an inference of each form takes."""
    rng = np.random.default_rng(0)
    feeds = {
        "int8": {f"x{i}": rng.integers(0, 256, IMAGE).astype(np.uint8) for i in range(inputs)},
        "float": {f"x{i}": rng.normal(size=IMAGE).astype(np.float32) for i in range(inputs)},
    }
    opened = {name: sessions.create(source, sessions.options(1)) for name, source in made.items()}
    taken: dict[str, list[float]] = {name: [] for name in made}
    for _ in range(ROUNDS):
        for name, session in opened.items():
            start = time.thread_time()
            session.run(None, feeds[name.split()[0]])
            taken[name].append(time.thread_time() - start)
    return {name: float(np.quantile(times, 0.2)) for name, times in taken.items()}


def measure(name: str, case: Case) -> str:
    """A line of the table."""
    try:
        made = forms(case)
        kernels = [one.op_type for one in optimised(made["int8 int8"]).graph.node]
        took = seconds(made, case.inputs)
    except BuildError as error:
        return f"{name:32} refused: {str(error).strip().splitlines()[-1][:80]}"
    between, alone = took["int8 int8"] / took["int8 float"], took["float int8"] / took["float float"]
    return f"{name:32} {between:5.2f} between int8 ops, {alone:5.2f} between float ones   {' '.join(kernels)}"


if __name__ == "__main__":
    print(f"onnxruntime {ort.__version__}, {'x'.join(map(str, IMAGE))}, time in 8 bits of the time in float")
    for name, case in CASES.items():
        if not sys.argv[1:] or name in sys.argv[1:]:
            print(measure(name, case))
