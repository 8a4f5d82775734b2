"""Small models that have one fault each, and the same ones without it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader

Array = NDArray[Any]

CHANNELS, SIZE = 16, 6


def noise(*shape: int, seed: int = 0) -> Array:
    """Random float32, of a size that keeps activations near one."""
    fan_in = max(1, int(np.prod(shape[1:])))
    return (np.random.default_rng([seed, *shape]).standard_normal(shape) / np.sqrt(fan_in)).astype(np.float32)


def images(count: int = 64, channels: int = CHANNELS, seed: int = 1, size: int = SIZE) -> Array:
    """Samples for the models here."""
    return np.random.default_rng(seed).standard_normal((count, channels, size, size)).astype(np.float32)


class Reader(CalibrationDataReader):  # type: ignore[misc]
    """The samples, as ONNX Runtime's own tool reads them."""

    def __init__(self) -> None:
        self._feeds = iter([{"x": images()}])

    def get_next(self) -> Any:
        return next(self._feeds, None)


class Net:
    """A graph in the making; a node is called as it is told, and so is what it writes."""

    def __init__(self, channels: int = CHANNELS, size: int = SIZE) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[TensorProto] = []
        self.input = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", channels, size, size])

    def add(self, kind: str, name: str, *inputs: str | Array, outputs: int = 1, **attributes: Any) -> Any:
        names = [
            given if isinstance(given, str) else self.constant(f"{name}.{at}", given) for at, given in enumerate(inputs)
        ]
        made = [name] if outputs == 1 else [f"{name}:{at}" for at in range(outputs)]
        self.nodes.append(helper.make_node(kind, names, made, name, **attributes))
        return made[0] if outputs == 1 else made

    def constant(self, name: str, values: Array) -> str:
        self.constants.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def conv(self, name: str, x: str, weight: Array, **attributes: Any) -> str:
        pads = [weight.shape[2] // 2] * 4
        result: str = self.add("Conv", name, x, weight, noise(len(weight), seed=7), pads=pads, **attributes)
        return result

    def clip(self, name: str, x: str) -> str:
        result: str = self.add("Clip", name, x, np.float32(0), np.float32(6))
        return result

    def model(self, *outputs: str) -> onnx.ModelProto:
        ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
        graph = helper.make_graph(self.nodes, "net", [self.input], ends, self.constants)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        made = onnx.shape_inference.infer_shapes(made)
        made.graph.ClearField("value_info")
        return made


def chain(first: Array | None = None, second: Array | None = None) -> onnx.ModelProto:
    """Two convolutions with a Relu between them, "first" and "second", and a third one."""
    net = Net()
    weights = [noise(CHANNELS, CHANNELS, 3, 3, seed=seed) for seed in (1, 2, 3)]
    weights[0] = weights[0] if first is None else first
    weights[1] = weights[1] if second is None else second
    a = net.add("Relu", "relu", net.conv("first", "x", weights[0]))
    return net.model(net.conv("third", net.conv("second", a, weights[1]), weights[2]))


def outlying_output_channel(factor: float = 300.0) -> onnx.ModelProto:
    """`second` has one output channel, number 5, of much larger weights; a Clip cuts what comes of it."""
    net = Net()
    weight = noise(CHANNELS, CHANNELS, 3, 3, seed=2)
    weight[5] *= factor
    a = net.add("Relu", "relu", net.conv("first", "x", noise(CHANNELS, CHANNELS, 3, 3, seed=1)))
    return net.model(net.clip("clip", net.conv("second", a, weight)))


def outlying_input_channel(factor: float = 300.0) -> onnx.ModelProto:
    """`first` makes one channel small, and `second` makes up for it with large weights in every output channel."""
    first, second = noise(CHANNELS, CHANNELS, 3, 3, seed=1), noise(CHANNELS, CHANNELS, 3, 3, seed=2)
    first[3] /= factor
    second[:, 3] *= factor
    net = Net()
    bias = noise(CHANNELS, seed=7)
    bias[3] /= factor
    a = net.add("Relu", "relu", net.add("Conv", "first", "x", first, bias, pads=[1] * 4))
    return net.model(net.conv("second", a, second))


def outlying_activation(factor: float = 300.0) -> onnx.ModelProto:
    """`first` makes one channel large, and `second` makes up for it with small weights."""
    return outlying_input_channel(1 / factor)


def spiked(count: int = 64, factor: float = 25.0) -> Array:
    """Samples in which one of a hundred values is much larger than the others."""
    samples = images(count)
    samples[np.random.default_rng(3).random(samples.shape) < 0.01] *= factor
    return samples


def dominated(count: int = 64, factor: float = 100.0) -> Array:
    """Samples of which one, number 9, is much larger than the others."""
    samples = images(count)
    samples[9] *= factor
    return samples


def joined(small: float) -> onnx.ModelProto:
    """A Concat of what two convolutions write, one of them `small` times as large as the other."""
    net = Net()
    left = net.conv("left", "x", noise(CHANNELS, CHANNELS, 3, 3, seed=1))
    right = net.add("Conv", "right", "x", noise(CHANNELS, CHANNELS, 3, 3, seed=2) * np.float32(small), pads=[1] * 4)
    both = net.add("Concat", "both", left, right, axis=1)
    return net.model(net.conv("after", both, noise(CHANNELS, 2 * CHANNELS, 1, 1, seed=3)))


def added(large: float) -> onnx.ModelProto:
    """An Add of what two convolutions write; channel 3 of the first is `large` times as large as all the rest."""
    net = Net()
    weight = noise(CHANNELS, CHANNELS, 3, 3, seed=1)
    weight[3] *= large
    left = net.add("Conv", "left", "x", weight * (np.arange(CHANNELS) == 3).reshape(-1, 1, 1, 1), pads=[1] * 4)
    right = net.add("Conv", "right", "x", noise(CHANNELS, CHANNELS, 3, 3, seed=2), pads=[1] * 4)
    return net.model(net.add("Add", "sum", left, right))


def cut_apart(small: float) -> onnx.ModelProto:
    """A Split of a tensor whose second half is `small` times as large as its first; a convolution reads each half."""
    net = Net()
    weight = noise(CHANNELS, CHANNELS, 3, 3, seed=1)
    weight[CHANNELS // 2 :] *= small
    whole = net.add("Conv", "whole", "x", weight, pads=[1] * 4)
    halves = net.add("Split", "cut", whole, np.array([CHANNELS // 2] * 2), outputs=2, axis=1)
    ends = [
        net.add("Conv", name, half, noise(CHANNELS, CHANNELS // 2, 3, 3, seed=seed), pads=[1] * 4)
        for name, half, seed in zip(("of_first", "of_second"), halves, (4, 5), strict=True)
    ]
    return net.model(*ends)


def logarithm(least: float) -> onnx.ModelProto:
    """The Log of values that are at least this large. int8 rounds values near zero to zero."""
    net = Net()
    weight, bias = np.ones((CHANNELS, 1, 1, 1), np.float32), np.full(CHANNELS, least, np.float32)
    scores = net.add("Conv", "scores", net.add("Abs", "abs", "x"), weight, bias, group=CHANNELS)
    return net.model(net.conv("after", net.add("Log", "log", scores), noise(CHANNELS, CHANNELS, 1, 1, seed=3)))


def broken(lift: float = 0.0) -> onnx.ModelProto:
    """The Log of what may be negative, unless it is lifted: NaN in the float model already."""
    net = Net()
    bias = np.full(CHANNELS, lift, np.float32)
    scores = net.add("Conv", "scores", "x", noise(CHANNELS, CHANNELS, 3, 3, seed=1), bias, pads=[1] * 4)
    return net.model(net.conv("after", net.add("Log", "log", scores), noise(CHANNELS, CHANNELS, 1, 1, seed=3)))


def never_reached(limit: float = 1000.0) -> onnx.ModelProto:
    """A product, `rare`, of the samples that go beyond a limit: there are none above 1000, and all are above 0."""
    net = Net()
    main = net.add("GlobalAveragePool", "pool", net.conv("main", "x", noise(CHANNELS, CHANNELS, 3, 3, seed=1)))
    flat = net.add("Flatten", "flat", main)
    corner = net.add("ReduceMax", "top", flat, axes=[1], keepdims=0)
    large = net.add("Greater", "large", corner, net.constant("limit", np.float32(limit)))
    chosen = net.add("Compress", "chosen", flat, large, axis=0)
    rare = net.add("MatMul", "rare", chosen, noise(CHANNELS, CHANNELS, seed=2))
    return net.model(flat, rare)


def flat_weight() -> onnx.ModelProto:
    """Two convolutions, the second one with one and the same value everywhere."""
    return chain(second=np.full((CHANNELS, CHANNELS, 3, 3), 0.25, np.float32))


def transposed(factor: float) -> onnx.ModelProto:
    """A ConvTranspose with one output channel of larger weights; a Clip cuts what comes of it."""
    net = Net()
    weight = noise(CHANNELS, CHANNELS, 3, 3, seed=2)
    weight[:, 5] *= factor
    a = net.conv("first", "x", noise(CHANNELS, CHANNELS, 3, 3, seed=1))
    return net.model(net.clip("clip", net.add("ConvTranspose", "up", a, weight, strides=[2, 2])))


def cancelling() -> onnx.ModelProto:
    """A convolution, `contrast`, in which what all inputs have in common cancels out."""
    net = Net()
    weight = noise(CHANNELS, CHANNELS, 1, 1, seed=1)
    weight -= weight.mean(axis=1, keepdims=True)
    return net.model(net.add("Conv", "contrast", "x", weight))


def raised(offset: float, count: int = 64) -> Array:
    """Samples that differ little from `offset`."""
    return images(count) * np.float32(0.03) + np.float32(offset)


def attention() -> onnx.ModelProto:
    """Products with large biases, one of them before a Relu, and two products of activations between them."""
    net = Net()

    def dense(name: str, x: str, rows: int, columns: int, seed: int) -> str:
        product = net.add("MatMul", name, x, noise(rows, columns, seed=seed))
        result: str = net.add("Add", f"{name}_bias", product, 20 * noise(columns, seed=seed + 50))
        return result

    places = net.add("Reshape", "places", "x", np.array([0, CHANNELS, SIZE * SIZE]))
    x = dense("embed", net.add("Transpose", "turned", places, perm=[0, 2, 1]), CHANNELS, 24, 1)
    query, key = dense("query", x, 24, 24, 2), dense("key", x, 24, 24, 3)
    scores = net.add("MatMul", "scores", query, net.add("Transpose", "key_turned", key, perm=[0, 2, 1]))
    mixed = net.add("MatMul", "mixed", net.add("Softmax", "softmax", scores, axis=-1), x)
    hidden = net.add("Relu", "relu", dense("hidden", mixed, 24, 32, 4))
    return net.model(net.add("Add", "residual", dense("out", hidden, 32, 24, 5), x))


def classifier() -> onnx.ModelProto:
    """What a network of images is made of: activations of all sorts, a Concat, pools, products and a Softmax."""
    net = Net()
    a = net.add("Relu", "relu", net.conv("first", "x", noise(CHANNELS, CHANNELS, 3, 3, seed=1)))
    b = net.conv("third", net.clip("clip", net.conv("second", a, noise(CHANNELS, CHANNELS, 3, 3, seed=2))),
                 noise(CHANNELS, CHANNELS, 3, 3, seed=3))  # fmt: skip
    total = net.add("Relu", "relu_sum", net.add("Add", "sum", a, b))
    gate = net.add("Sigmoid", "gate", net.conv("squeeze", total, noise(CHANNELS, CHANNELS, 1, 1, seed=4)))
    both = net.add("Concat", "both", net.add("Mul", "gated", total, gate), a, axis=1)
    pooled = net.add("MaxPool", "largest", both, kernel_shape=[2, 2], strides=[2, 2])
    flat = net.add("Flatten", "flat", net.add("GlobalAveragePool", "mean", pooled))
    weights = 3 * noise(CHANNELS, 2 * CHANNELS, seed=5), noise(8, CHANNELS, seed=6)
    hidden = net.add("Relu", "relu_hidden", net.add("Gemm", "hidden", flat, weights[0], noise(16, seed=7), transB=1))
    return net.model(net.add("Softmax", "softmax", net.add("Gemm", "scores", hidden, weights[1], transB=1), axis=-1))
