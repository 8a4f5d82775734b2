"""An op reported as int8 runs in an integer kernel, and one reported as fp32 does not, whatever stands around it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from onnx_graphs import IMAGE, ROWS, SAME, attention, conv, residual
from onnx_models import Array, Net, data, deviation, kernels, opened, random_config, space, weight

from quaver.adapters.onnxrt.adapter import OnnxAdapter
from quaver.errors import ModelError
from quaver.ops import INT4, MODES, Op, OpConfig, QuantConfig
from quaver.space import TuningSpace

f32 = np.float32

Graph = Callable[[Net], Any]


def between(make: Callable[[Net, str], str], inputs: int = 4) -> Graph:
    """A graph in which one op stands between two int8 convolutions."""
    return lambda net: conv(net, make(net, conv(net, net.input(*IMAGE))), seed=1, inputs=inputs)


def gemms(make: Callable[[Net, str], str]) -> Graph:
    """A graph in which one op stands between int8 ops on matrices."""
    return lambda net: net.Sigmoid(make(net, net.Sigmoid(net.input(None, 8))))


def products(make: Callable[[Net, str], str], batch: int | None = None) -> Graph:
    """The same with three dimensions."""
    return lambda net: net.Sigmoid(make(net, net.Sigmoid(net.input(batch, *ROWS[1:]))))


def embedding(net: Net) -> str:
    def look_up(name: str, seed: int) -> str:
        return str(net.Gather(weight(16, 8, seed=seed), net.input(None, 5, name=name, dtype=TensorProto.INT64)))

    return str(net.MatMul(net.Add(look_up("words", 0), look_up("types", 1)), weight(8, 3)))


def look_up(net: Net, name: str, seed: int = 0, **axis: int) -> str:
    """Rows of a table that is large enough to be worth 8 bits."""
    rows = net.input(None, 5, name=name, dtype=TensorProto.INT64)
    return str(net.Gather(weight(2048, 8, seed=seed), rows, **axis))


def tables(net: Net) -> tuple[str, str, str]:
    words, types = look_up(net, "words"), look_up(net, "types", seed=1)
    total = net.Add(words, types)
    moved = net.Sigmoid(net.Transpose(words, perm=[0, 2, 1]))
    return net.MatMul(net.LayerNormalization(total, weight(8), weight(8)), weight(8, 3)), moved, types


def wide(net: Net) -> str:
    """A table and products that are large enough for weights of four bits, between int8 ops, clips and biases."""
    rows = net.input(None, 5, name="words", dtype=TensorProto.INT64)
    x = net.Gather(weight(256, 64), rows)
    y = net.Relu(net.Add(net.MatMul(net.Sigmoid(x), weight(64, 64)), weight(64)))
    y = net.Sigmoid(net.Reshape(net.Add(y, x), np.array([-1, 64])))
    y = net.Relu(net.Gemm(y, weight(80, 64), weight(80), transB=1))
    return str(net.Sigmoid(net.Gemm(y, weight(80, 65, seed=1))))


def split(net: Net) -> tuple[str, str]:
    one, other = net.Split(conv(net, net.input(*IMAGE)), np.array([2, 2]), axis=1, outputs=2)
    return conv(net, one, inputs=2), net.Mul(other, net.Sigmoid(one))


def squeeze_and_excite(net: Net) -> str:
    x = conv(net, net.input(*IMAGE))
    gate = net.Sigmoid(conv(net, net.Relu(conv(net, net.GlobalAveragePool(x))), seed=1))
    return conv(net, net.Mul(x, gate), seed=2)


def read_by_both(make: Callable[[Net, str], str], *shape: int | None) -> Graph:
    """A result that an int8 op reads, an op that is always float, and the user."""

    def graph(net: Net) -> tuple[str, ...]:
        x = make(net, net.input(*shape))
        return net.Sigmoid(x), net.Tanh(x), x

    return graph


def shared(net: Net) -> str:
    kernel, bias, x = net.constant(weight(4, 4, 3, 3)), net.constant(weight(4)), net.input(*IMAGE)
    for _ in range(3):
        x = net.Relu(net.Conv(x, kernel, bias, **SAME))
    return x


def relu_and_clip(net: Net, x: str) -> tuple[str, str]:
    return net.Relu(x), net.Sigmoid(net.Clip(x, f32(0), f32(0.5)))


GRAPHS: dict[str, tuple[Graph, str]] = {
    "Conv 1D": (lambda net: net.Conv(net.Conv(net.input(None, 4, 16), weight(8, 4, 3)), weight(6, 8, 3)), "Conv Conv"),
    "Conv 2D": (between(lambda net, x: net.Conv(x, weight(4, 4, 3, 3), strides=[2, 2])), "Conv Conv Conv"),
    "Conv 3D": (
        lambda net: net.Conv(net.Conv(net.input(None, 2, 6, 6, 6), weight(4, 2, 3, 3, 3)), weight(4, 4, 1, 1, 1)),
        "Conv Conv",
    ),
    "depthwise Conv": (
        between(lambda net, x: net.Conv(x, weight(4, 1, 3, 3), weight(4), group=4)),
        "Conv Conv Conv",
    ),
    "Conv and Relu": (between(lambda net, x: net.Relu(x)), "Conv Conv"),
    "Conv and Clip(0, 6)": (between(lambda net, x: net.Clip(x, f32(0), f32(6))), "Conv Conv"),
    "Conv and a Clip that cuts much": (between(lambda net, x: net.Clip(x, f32(0), f32(0.1))), "Conv Conv"),
    "Conv and Clip(-1, 1)": (between(lambda net, x: net.Clip(x, f32(-1), f32(1))), "Conv Clip Conv"),
    "Conv and Clip without minimum": (between(lambda net, x: net.Clip(x, "", f32(1))), "Conv Clip Conv"),
    "Conv, Relu and Clip": (between(lambda net, x: net.Clip(net.Relu(x), f32(0), f32(0.5))), "Conv Conv"),
    "Conv with an output that is read twice": (
        between(lambda net, x: net.Add(net.Relu(x), net.Clip(x, f32(0), f32(1)))),
        "Conv Relu Clip Add Conv",
    ),
    "ConvTranspose": (
        between(lambda net, x: net.ConvTranspose(x, weight(4, 4, 2, 2), weight(4))),
        "Conv ConvTranspose Conv",
    ),
    "Conv with a weight that is computed": (
        lambda net: net.Sigmoid(net.Conv(net.input(1, 4, 8, 8), net.Sigmoid(net.input(4, 4, 1, 1, name="w")))),
        "Sigmoid Sigmoid",
    ),
    "Gemm": (gemms(lambda net, x: net.Gemm(x, weight(8, 5), weight(5))), "Sigmoid Gemm Sigmoid"),
    "Gemm without bias": (gemms(lambda net, x: net.Gemm(x, weight(8, 5))), "Sigmoid Gemm Sigmoid"),
    "Gemm with transB": (
        gemms(lambda net, x: net.Gemm(x, weight(5, 8), weight(5), transB=1)),
        "Sigmoid Gemm Sigmoid",
    ),
    "Gemm with transA": (
        lambda net: net.Sigmoid(net.Gemm(net.Sigmoid(net.input(8, 3)), weight(8, 5), transA=1)),
        "Sigmoid Sigmoid",
    ),
    "Gemm with alpha": (gemms(lambda net, x: net.Gemm(x, weight(8, 5), alpha=2.0)), "Sigmoid Sigmoid"),
    "Gemm with beta": (gemms(lambda net, x: net.Gemm(x, weight(8, 5), weight(5), beta=0.5)), "Sigmoid Sigmoid"),
    "Gemm with a bias of two axes": (
        gemms(lambda net, x: net.Gemm(x, weight(8, 5), weight(1, 5))),
        "Sigmoid Sigmoid",
    ),
    "Gemm with one number as bias": (gemms(lambda net, x: net.Gemm(x, weight(8, 5), f32(0.3))), "Sigmoid Sigmoid"),
    "Gemm of two activations": (gemms(lambda net, x: net.Gemm(x, net.Transpose(x))), "Sigmoid Sigmoid"),
    "Gemm and Relu": (gemms(lambda net, x: net.Relu(net.Gemm(x, weight(8, 5), weight(5)))), "Sigmoid Gemm Sigmoid"),
    "Gemm, Relu, Gemm": (
        lambda net: net.Gemm(net.Relu(net.Gemm(net.input(None, 8), weight(8, 5), weight(5))), weight(5, 3)),
        "Gemm Gemm",
    ),
    "Gemm and Clip(-1, 1)": (
        gemms(lambda net, x: net.Clip(net.Gemm(x, weight(8, 5)), f32(-1), f32(1))),
        "Sigmoid Gemm Sigmoid",
    ),
    "Gemm read by Relu and Clip": (
        lambda net: relu_and_clip(net, net.Gemm(net.input(None, 8), weight(8, 8), weight(8))),
        "Gemm Sigmoid",
    ),
    "Gemm, Relu and Clip": (
        gemms(lambda net, x: net.Clip(net.Relu(net.Gemm(x, weight(8, 5), weight(5))), f32(-1), f32(0.5))),
        "Sigmoid Gemm Sigmoid",
    ),
    "Gemm and a Relu that is given out": (
        lambda net: (x := net.Relu(net.Gemm(net.input(None, 8), weight(8, 8), weight(8))), net.Sigmoid(x)),
        "Gemm Sigmoid",
    ),
    "Gemm and Relu read by both": (
        read_by_both(lambda net, x: net.Relu(net.Gemm(x, weight(8, 8), weight(8))), None, 8),
        "Gemm Sigmoid",
    ),
    "Gemm read by both": (read_by_both(lambda net, x: net.Gemm(x, weight(8, 8)), None, 8), "Gemm Sigmoid"),
    "MatMul 2D": (gemms(lambda net, x: net.MatMul(x, weight(8, 5))), "Sigmoid MatMul Sigmoid"),
    "MatMul 2D and Relu": (
        lambda net: net.MatMul(net.Relu(net.MatMul(net.input(None, 8), weight(8, 5))), weight(5, 3)),
        "MatMul MatMul",
    ),
    "MatMul 2D and bias": (
        gemms(lambda net, x: net.Relu(net.Add(net.MatMul(x, weight(8, 5)), weight(5)))),
        "Sigmoid Gemm Sigmoid",
    ),
    "MatMul 2D and what is added": (
        lambda net: net.Sigmoid(net.Add(net.MatMul(x := net.Sigmoid(net.input(None, 8)), weight(8, 8)), x)),
        "Sigmoid MatMul Add Sigmoid",
    ),
    "MatMul 2D and one number as bias": (
        gemms(lambda net, x: net.Add(net.MatMul(x, weight(8, 5)), f32(0.3))),
        "Sigmoid MatMul Sigmoid",
    ),
    "MatMul 3D": (products(lambda net, x: net.MatMul(x, weight(8, 5))), "Sigmoid MatMul Sigmoid"),
    "MatMul 3D and bias": (
        products(lambda net, x: net.Add(weight(5), net.MatMul(x, weight(8, 5)))),
        "Sigmoid MatMul Sigmoid",
    ),
    "MatMul 3D, bias and Relu": (
        products(lambda net, x: net.Relu(net.Add(net.MatMul(x, weight(8, 5)), weight(5)))),
        "Sigmoid MatMul Sigmoid",
    ),
    "MatMul 3D and a bias per row": (
        products(lambda net, x: net.Add(net.MatMul(x, weight(8, 5)), weight(3, 1))),
        "Sigmoid MatMul Sigmoid",
    ),
    "MatMul with a batch of weights": (
        lambda net: net.Sigmoid(net.MatMul(net.Sigmoid(net.input(2, 3, 8)), weight(2, 8, 5))),
        "Sigmoid MatMul Sigmoid",
    ),
    "MatMul with a constant on the left": (
        lambda net: net.Sigmoid(net.MatMul(weight(6, 8), net.Sigmoid(net.input(8, 4)))),
        "Sigmoid Sigmoid",
    ),
    "MatMul with a vector": (products(lambda net, x: net.MatMul(x, weight(8))), "Sigmoid Sigmoid"),
    "MatMul of two activations": (
        products(lambda net, x: net.MatMul(x, net.Transpose(x, perm=[0, 2, 1]))),
        "Sigmoid MatMul Sigmoid",
    ),
    "MatMul of a tensor with itself": (
        lambda net: net.Sigmoid(net.MatMul(x := net.Sigmoid(net.input(2, 4, 4)), x)),
        "Sigmoid MatMul Sigmoid",
    ),
    "MatMul read by both": (read_by_both(lambda net, x: net.MatMul(x, weight(8, 8)), *ROWS), "MatMul Sigmoid"),
    "MatMul read by both after Reshape": (
        read_by_both(lambda net, x: net.Reshape(net.MatMul(x, weight(8, 8)), np.array([0, 3, 2, 4])), *ROWS),
        "MatMul Sigmoid",
    ),
    "products of a known shape and bias": (
        products(lambda net, x: net.Add(net.MatMul(x, weight(8, 5)), weight(5)), batch=2),
        "Sigmoid Gemm Sigmoid",
    ),
    "products of a known shape, bias and Relu": (
        lambda net: net.Relu(net.Add(net.MatMul(net.Sigmoid(net.input(2, 3, 8)), weight(8, 5)), weight(5))),
        "Sigmoid Gemm",
    ),
    "products of a known shape, one after the other": (
        lambda net: net.Add(
            net.MatMul(net.Relu(net.Add(net.MatMul(net.input(2, 3, 8), weight(8, 5)), weight(1, 1, 5))), weight(5, 3)),
            weight(3),
        ),
        "Gemm Gemm",
    ),
    "products of a known shape that share what they read": (
        lambda net: (
            x := net.Sigmoid(net.input(2, 3, 8)),
            net.Tanh(net.Add(net.MatMul(x, weight(8, 5)), weight(5))),
            net.Sigmoid(net.Add(net.MatMul(x, weight(8, 4)), weight(4))),
        ),
        "Sigmoid Gemm Gemm Sigmoid",
    ),
    "attention of a known shape": (
        lambda net: attention(net, batch=2),
        "Gemm Gemm Gemm MatMul MatMul Gemm Add Gemm",
    ),
    "attention": (attention, "MatMul MatMul MatMul MatMul MatMul MatMul Add MatMul"),
    "embedding": (embedding, "Add MatMul"),
    "residual blocks": (residual, "Conv Conv Conv Add Conv Add GlobalAveragePool Gemm"),
    "Add of a tensor to itself": (between(lambda net, x: net.Add(x, x)), "Conv Add Conv"),
    "Add of a constant": (between(lambda net, x: net.Add(net.Sigmoid(x), f32(1))), "Conv Sigmoid Conv"),
    "Mul that broadcasts": (squeeze_and_excite, "Conv GlobalAveragePool Conv Conv Sigmoid Mul Conv"),
    "Mul and Relu": (between(lambda net, x: net.Relu(net.Mul(x, net.Sigmoid(x)))), "Conv Sigmoid Mul Relu Conv"),
    "Concat": (
        between(lambda net, x: net.Concat(x, net.Relu(x), conv(net, x), axis=1), inputs=12),
        "Conv Relu Conv Concat Conv",
    ),
    "Concat of a tensor with itself": (
        between(lambda net, x: net.Concat(x, net.Identity(x), axis=1), inputs=8),
        "Conv Concat Conv",
    ),
    "Sigmoid": (between(lambda net, x: net.Sigmoid(x)), "Conv Sigmoid Conv"),
    "LeakyRelu": (between(lambda net, x: net.LeakyRelu(x, alpha=0.1)), "Conv LeakyRelu Conv"),
    "AveragePool": (between(lambda net, x: net.AveragePool(x, kernel_shape=[2, 2])), "Conv AveragePool Conv"),
    "AveragePool and Relu": (
        between(lambda net, x: net.Relu(net.AveragePool(x, kernel_shape=[2, 2]))),
        "Conv AveragePool Relu Conv",
    ),
    "GlobalAveragePool": (between(lambda net, x: net.GlobalAveragePool(x)), "Conv GlobalAveragePool Conv"),
    "MaxPool": (between(lambda net, x: net.MaxPool(x, kernel_shape=[2, 2], **SAME)), "Conv Conv"),
    "nearest Resize": (
        between(lambda net, x: net.Resize(x, "", np.array([1, 1, 2, 2], f32), mode="nearest")),
        "Conv Conv",
    ),
    "linear Resize": (
        between(lambda net, x: net.Resize(x, "", np.array([1, 1, 2, 2], f32), mode="linear")),
        "Conv Conv",
    ),
    "Split": (split, "Conv Conv Sigmoid Mul"),
    "Slice": (between(lambda net, x: net.Slice(x, np.array([0]), np.array([3]), np.array([2]))), "Conv Conv"),
    "Gather": (between(lambda net, x: net.Gather(x, np.array([3, 1, 0, 0]), axis=1)), "Conv Conv"),
    "Pad": (between(lambda net, x: net.Pad(x, np.array([0, 0, 1, 1, 0, 0, 1, 1]))), "Conv Conv"),
    "Reshape and Transpose": (
        between(lambda net, x: net.Transpose(net.Reshape(x, np.array([0, 8, 4, 8])), perm=[0, 2, 1, 3])),
        "Conv Conv",
    ),
    "Softmax, Where and hard-swish": (
        between(lambda net, x: net.Where(np.array([True, False] * 4), net.Softmax(x), net.HardSwish(x))),
        "Conv HardSigmoid Mul Conv",  # the runtime knows hard-swish as x * HardSigmoid(x)
    ),
    "hard-sigmoid": (
        between(lambda net, x: net.HardSigmoid(net.MaxPool(x, kernel_shape=[2, 2]), alpha=0.3, beta=0.4)),
        "Conv HardSigmoid Conv",
    ),
    "hard-sigmoid that is moved about": (
        between(lambda net, x: net.Transpose(net.HardSigmoid(net.Tanh(x)), perm=[0, 1, 3, 2])),
        "Conv HardSigmoid Conv",
    ),
    "hard-sigmoid with a shift beyond one": (
        between(lambda net, x: net.HardSigmoid(net.Tanh(x), beta=1.5)),
        "Conv Conv",
    ),
    "hard-sigmoid read by both": (
        read_by_both(lambda net, x: net.HardSigmoid(x), *IMAGE),
        "HardSigmoid Sigmoid",
    ),
    "hard-sigmoid of what the user gets": (
        lambda net: (x := net.Sigmoid(net.input(*IMAGE)), net.Sigmoid(net.HardSigmoid(x))),
        "Sigmoid HardSigmoid Sigmoid",
    ),
    "an input that is read by both": (read_by_both(lambda net, x: x, *IMAGE), "Sigmoid"),
    "an output that is read by both": (read_by_both(conv, *IMAGE), "Conv Sigmoid"),
    "shared weight and bias": (shared, "Conv Conv Conv"),
    "Pad of channels": (
        between(lambda net, x: net.Pad(net.Sigmoid(x), np.array([0, 0, 0, 0, 0, 2, 0, 0])), inputs=6),
        "Conv Sigmoid Pad Conv",
    ),
    "Pad that reflects": (
        between(lambda net, x: net.Pad(x, np.array([0, 0, 1, 1, 0, 0, 1, 1]), mode="reflect")),
        "Conv Pad Conv",
    ),
    "Pad with a number": (
        between(lambda net, x: net.Pad(x, np.array([0, 0, 1, 1, 0, 0, 1, 1]), f32(3))),
        "Conv Conv",
    ),
    "Max and Min with a number": (
        between(lambda net, x: net.Min(f32(0.5), net.Max(x, np.full((1, 1, 1, 1), -0.4, f32)))),
        "Conv Max Min Conv",
    ),
    "Max of two": (between(lambda net, x: net.Max(x, net.Sigmoid(x))), "Conv Sigmoid Conv"),
    "GlobalMaxPool": (between(lambda net, x: net.GlobalMaxPool(x)), "Conv GlobalMaxPool Conv"),
    "ReduceMax and ReduceMin": (
        between(lambda net, x: net.ReduceMin(net.ReduceMax(x, axes=[2]), axes=[3])),
        "Conv ReduceMax ReduceMin Conv",
    ),
    "ReduceMean over an image": (
        between(lambda net, x: net.ReduceMean(x, axes=[-1, 2])),
        "Conv ReduceMean Conv",
    ),
    "ReduceMean over an image, which is gone": (
        lambda net: net.Sigmoid(net.ReduceMean(conv(net, net.input(*IMAGE)), axes=[2, 3], keepdims=0)),
        "Conv ReduceMean Sigmoid",
    ),
    "ReduceMean over channels": (between(lambda net, x: net.ReduceMean(x, axes=[1]), inputs=1), "Conv Conv"),
    "SpaceToDepth": (between(lambda net, x: net.SpaceToDepth(x, blocksize=2), inputs=16), "Conv SpaceToDepth Conv"),
    "Where of two": (
        between(lambda net, x: net.Where(np.array([True, False] * 4), x, net.Sigmoid(x))),
        "Conv Sigmoid Where Conv",
    ),
    "a number added and one multiplied with": (
        between(lambda net, x: net.Sigmoid(net.Add(net.Sigmoid(net.Mul(f32(-1.7), net.Sigmoid(x))), f32(0.3)))),
        "Conv Sigmoid Mul Sigmoid Add Sigmoid Conv",
    ),
    "numbers in a float neighbourhood": (
        lambda net: net.Tanh(net.Relu(net.Add(net.Tanh(net.Sigmoid(net.input(*IMAGE))), f32(1)))),
        "Sigmoid",
    ),
    "one that hands on to the user and to float, moved": (
        lambda net: (
            kept := net.Clip(net.Transpose(conv(net, net.input(*IMAGE)), perm=[0, 1, 3, 2]), f32(-0.5), f32(0.5)),
            net.Tanh(kept),
            net.Sigmoid(net.Transpose(kept, perm=[0, 1, 3, 2])),
        ),
        "Conv Clip Sigmoid",
    ),
    "tables, one of them an output": (tables, "Gather Gather Add Sigmoid MatMul"),
    "weights of four bits": (wide, "Gather Sigmoid MatMul Add Sigmoid Gemm Gemm Sigmoid"),
    "a table before a float op": (lambda net: net.Tanh(look_up(net, "words")), "Gather"),
    "a table before a product": (
        lambda net: net.Sigmoid(net.MatMul(look_up(net, "words"), weight(8, 8))),
        "Gather MatMul Sigmoid",
    ),
    "a table that is looked up by columns": (
        lambda net: net.Sigmoid(net.Transpose(look_up(net, "words", axis=1), perm=[1, 2, 0])),
        "Gather Sigmoid",
    ),
}


def build_graph(which: str) -> onnx.ModelProto:
    net = Net()
    outputs = GRAPHS[which][0](net)
    names = [outputs] if isinstance(outputs, str) else [name for name in outputs if name != "x"]
    return net.model(*names)


# The kernels of ops that read float and write float, whatever stands around them.
FOUR_BITS = {"GatherBlockQuantized", "MatMulNBits"}
BETWEEN_FLOATS = {
    "dynamic": {"DynamicQuantizeLSTM", "DynamicQuantizeMatMul", "MatMulIntegerToFloat"},
    "weight_only": {"Conv", "ConvTranspose", "FusedConv", "Gather", "MatMulNBits"},
}


def usual(choice: OpConfig, kernel: str) -> set[str]:
    """The kernels in which an op may run so; any in static mode."""
    return FOUR_BITS if choice.precision == INT4 else BETWEEN_FLOATS.get(choice.mode, {kernel})


def misplaced(config: QuantConfig, found: dict[str, str]) -> dict[str, str]:
    """The ops that are not executed in a kernel of their mode."""
    return {
        name: f"{choice}: {found.get(name)}"
        for name, choice in config.items()
        if (name in found) != choice.quantized or (choice.quantized and found[name] not in usual(choice, found[name]))
    }


def in_mode(op: Op, mode: str) -> OpConfig:
    """The first choice of an op in a mode, or else its default."""
    return next((choice for choice in op.choices if choice.quantized and choice.mode == mode), op.choices[0])


def configs(ops: TuningSpace) -> dict[str, QuantConfig]:
    """All int8 in each mode, none, each op alone in int8, in each mode, each alone in fp32, and some at random."""
    rng = np.random.default_rng(0)
    int8 = ops.configure(lambda op: next(choice for choice in op.choices if choice.precision == "int8"))
    return {
        "all int8": int8,
        "all fp32": ops.all_fp32(),
        **{f"all {mode}": ops.configure(functools.partial(in_mode, mode=mode)) for mode in MODES},
        **{
            f"only {op.name} {choice}": ops.all_fp32().replace({op.name: choice})
            for op in ops.ops
            for choice in (*op.choices, *op.smaller)
            if choice.quantized and not choice.calibrated
        },
        "all four bits": ops.configure(lambda op: next(iter(op.smaller), op.choices[0])),
        **{f"only {op.name} in four bits": int8.replace({op.name: op.smaller[0]}) for op in ops.ops if op.smaller},
        **{f"only {name} int8": ops.all_fp32().replace({name: int8[name]}) for name in int8},
        **{f"only {name} fp32": int8.fallback(name) for name in int8},
        **{f"random {i}": random_config(ops, rng) for i in range(6)},
    }


@pytest.mark.parametrize("which", GRAPHS)
def test_the_kernels_are_those_of_the_configuration(which: str) -> None:
    model = build_graph(which)
    with opened(model) as adapter:
        ops = space(adapter)
        assert " ".join(op.kind for op in ops.ops) == GRAPHS[which][1]
        for label, config in configs(ops).items():
            assert misplaced(config, kernels(adapter, config)) == {}, label
        for config in configs(ops).values():
            onnx.checker.check_model(adapter.assemble(config).SerializeToString(), full_check=True)
        assert deviation(model, adapter, ops.all_fp32()) < 1e-5
        assert deviation(model, adapter, ops.default_config()) < 0.1


def test_a_convolution_with_no_integer_kernel_is_fp32_unless_asked_for() -> None:
    with opened(build_graph("ConvTranspose")) as adapter:
        ops = space(adapter)
        (name,) = ops.of_kind("ConvTranspose")
        assert ops.default_config()[name].precision == "fp32"
        asked = ops.default_config().replace({name: ops[name].choices[1]})
        assert adapter.assemble(asked).size < adapter.assemble(ops.default_config()).size + 64


@pytest.mark.parametrize("seed", range(24))
def test_the_kernels_are_right_in_a_graph_grown_at_random(seed: int) -> None:
    rng = np.random.default_rng(seed)
    net = Net()
    grown = [net.input(*IMAGE)]
    steps: list[Callable[[str, str], str]] = [
        lambda a, b: conv(net, a, seed=int(rng.integers(9))),
        lambda a, b: net.Conv(a, weight(4, 1, 3, 3), group=4, **SAME),
        lambda a, b: net.Relu(a),
        lambda a, b: net.Clip(a, f32(0), f32(6)),
        lambda a, b: net.Add(a, b),
        lambda a, b: net.Mul(a, net.Sigmoid(b)),
        lambda a, b: net.MaxPool(a, kernel_shape=[3, 3], **SAME),
        lambda a, b: net.AveragePool(a, kernel_shape=[3, 3], **SAME),
        lambda a, b: conv(net, net.Concat(a, b, axis=1), inputs=8),
        lambda a, b: net.MatMul(a, weight(8, 8)),
        lambda a, b: net.MatMul(a, net.Transpose(b, perm=[0, 1, 3, 2])),
        lambda a, b: net.Reshape(net.Gemm(net.Reshape(a, np.array([-1, 8])), weight(8, 8), weight(8)), f"shape:{a}"),
        lambda a, b: net.Tanh(a),
        lambda a, b: net.Softmax(a),
        lambda a, b: net.Mul(f32(1), a),
        lambda a, b: net.Transpose(a, perm=[0, 1, 3, 2]),
        lambda a, b: net.Max(a, f32(-0.2)),
        lambda a, b: net.Add(f32(0.3), a),
        lambda a, b: net.Where(np.array([True, False] * 4), a, b),
        lambda a, b: net.Mul(a, net.Add(net.GlobalMaxPool(a), net.ReduceMean(b, axes=[2, 3]))),
        lambda a, b: net.Conv(net.Pad(a, np.array([0, 0, 1, 1, 0, 0, 1, 1]), mode="edge"), weight(4, 4, 3, 3)),
    ]
    net.constant(np.array([-1, 4, 8, 8]), "shape")
    for _ in range(10):
        a, b = (grown[max(0, len(grown) - 1 - int(rng.exponential(1.5)))] for _ in range(2))
        grown.append(steps[rng.integers(len(steps))](a, b))
    for node in net.nodes:
        for slot, name in enumerate(node.input):
            node.input[slot] = "shape" if name.startswith("shape:") else name
    read = {name for node in net.nodes for name in node.input}
    model = net.model(*(name for name in grown[1:] if name not in read or rng.random() < 0.1))
    with opened(model) as adapter:
        ops = space(adapter)
        for config in [ops.default_config(), *(random_config(ops, rng, share) for share in (0.2, 0.5, 0.8))]:
            assert set(kernels(adapter, config)) == set(config.int8_ops)


# --- odd numbers ---


def pair(first: Array, bias: Array | None = None) -> onnx.ModelProto:
    """A convolution with a given weight, and an ordinary one after it."""
    net = Net()
    x = net.Conv(net.input(2, 4, 8, 8), first, *([] if bias is None else [bias]))
    return net.model(net.Conv(x, weight(4, len(first), 1, 1), weight(4)))


def both_int8(adapter: OnnxAdapter) -> bool:
    return all(
        set(kernels(adapter, config)) == set(config.int8_ops)
        for granularity in ("per_channel", "per_tensor")
        for scheme in ("asym", "sym")
        if (config := space(adapter).default_config(granularity=granularity, scheme=scheme))
    )


def test_channels_of_zeros_stay_exact() -> None:
    kernel = weight(4, 4, 1, 1)
    kernel[[1, 3]] = 0
    model = pair(kernel, bias := weight(4))
    with opened(model) as adapter:
        assert both_int8(adapter)
        assert deviation(model, adapter, space(adapter).default_config()) < 0.02
    net = Net()
    dead = net.model(net.Conv(net.input(2, 4, 8, 8), np.zeros((4, 4, 1, 1), f32), bias))
    with opened(dead) as adapter:
        assert deviation(dead, adapter, space(adapter).default_config()) < 0.005


def test_a_tensor_that_is_always_zero_can_be_quantized() -> None:
    net = Net()
    dead = net.Relu(net.Conv(net.input(2, 4, 8, 8), weight(4, 4, 1, 1), np.full(4, -99, f32)))
    model = net.model(net.Conv(dead, weight(4, 4, 1, 1), weight(4)))
    with opened(model) as adapter:
        assert both_int8(adapter)
        assert deviation(model, adapter, space(adapter).default_config()) < 0.005


def test_the_bias_of_a_nearly_dead_channel_does_not_wrap_around() -> None:
    kernel = weight(4, 4, 1, 1)
    kernel[2] *= f32(1e-9)
    bias = np.array([0.1, -0.2, 3.0, 0.1], f32)
    model = pair(kernel, bias)
    with opened(model) as adapter:
        assert both_int8(adapter)
        config = space(adapter).default_config()
        assert deviation(model, adapter, config) < 0.02
        constants = {
            entry.name: onnx.numpy_helper.to_array(entry) for entry in adapter.assemble(config).model.graph.initializer
        }
        steps = next(
            array for name, array in constants.items() if array.dtype == np.int32 and name.startswith("Conv_0")
        )
        assert abs(int(steps[2])) > 2**30 and steps[2] > 0


def test_two_ops_that_share_a_weight_may_need_different_scales() -> None:
    """One of them has the bias that makes its scale wider; the other keeps the fine one."""
    net = Net()
    shared_kernel = weight(4, 4, 1, 1)
    shared_kernel[2] *= f32(1e-9)
    kernel = net.constant(shared_kernel)
    x = net.Conv(net.input(2, 4, 8, 8), kernel, np.array([0.1, -0.2, 3.0, 0.1], f32))
    model = net.model(net.Conv(x, kernel), net.Conv(x, kernel, np.zeros(4, f32)))
    with opened(model) as adapter:
        assert both_int8(adapter)
        assert deviation(model, adapter, space(adapter).default_config()) < 0.05


def test_weights_of_one_element_can_be_quantized() -> None:
    net = Net()
    x = net.Conv(net.input(2, 1, 8, 8), np.full((1, 1, 1, 1), 0.7, f32))
    flat = net.Reshape(x, np.array([-1, 1]))
    model = net.model(
        net.Gemm(net.Gemm(flat, np.full((1, 1), -0.3, f32), np.full(1, 0.1, f32)), np.full((1, 1), 2, f32))
    )
    with opened(model) as adapter:
        assert both_int8(adapter)
        assert deviation(model, adapter, space(adapter).default_config()) < 0.02


@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_a_weight_that_holds_no_number_is_named(broken: float) -> None:
    kernel = weight(4, 4, 1, 1)
    model = pair(kernel)
    with opened(model) as adapter:
        ranges = adapter.calibrate(data(adapter))
    kernel[1, 2] = broken
    with opened(pair(kernel), calibrate=False) as adapter:
        adapter.restore(ranges)
        config = space(adapter).default_config()
        with pytest.raises(ModelError, match=r"the weight 'c0' holds NaN or infinity"):
            adapter.build(config)
        adapter.build(config.fallback("Conv_0")).close()


@pytest.mark.parametrize("further", [True, False], ids=["moved again", "read at once"])
def test_a_float_output_that_was_moved_about_stays_float(further: bool) -> None:
    """The optimiser would quantize it before the move, for the sake of the int8 op that comes later."""
    net = Net()
    moved = net.Reshape(net.Tanh(net.input(None, 6, 8)), np.array([0, 6, 2, 4]))
    read = net.Transpose(moved, perm=[0, 2, 1, 3]) if further else moved
    model = net.model(net.Sigmoid(read), moved)
    with opened(model) as adapter:
        feed = data(adapter)[0]
        _, given = adapter.build(space(adapter).default_config())(feed)
        assert np.abs(given - np.tanh(feed["x"]).reshape(-1, 6, 2, 4)).max() < 1e-5


def test_an_fp32_reader_of_an_fp32_op_gets_what_was_never_quantized() -> None:
    net = Net()
    x = conv(net, net.input(2, 4, 8, 8))
    model = net.model(conv(net, x, seed=1), net.Tanh(x))
    with opened(model) as adapter:
        feed = data(adapter)[0]
        exact = adapter.build(None)(feed)[1]
        ops = space(adapter)
        assert np.array_equal(adapter.build(ops.only_int8("Conv_1"))(feed)[1], exact)
        assert not np.array_equal(adapter.build(ops.only_int8("Conv_0"))(feed)[1], exact)
