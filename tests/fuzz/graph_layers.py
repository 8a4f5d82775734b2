"""The layers that random graphs are made of, each in the form that its opset asks for."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from graph_builder import GraphBuilder, Rejected

Layer = Callable[[GraphBuilder], Any]
_ACTIVATIONS = ("Relu", "Relu", "Relu", "Clip", "Clip", "LeakyRelu", "PRelu", "Elu", "HardSigmoid", "HardSwish",
                "Sigmoid", "Tanh", "Gelu", "Swish", "HardSwishChain", "Softplus", "Selu", "Mish", "Erf",
                "Exp")  # fmt: skip


def _window(b: GraphBuilder, source: str, dilated: bool = True) -> dict[str, Any]:
    """Return attributes of a window that moves over the places of an image, a signal or a volume."""
    places = b.shape(source)[2:]
    kernel = [int(b.rng.integers(1, min(4, place + 1))) if place > 0 else 1 for place in places]
    attributes: dict[str, Any] = {"kernel_shape": kernel}
    if b.chance(0.5):
        attributes["strides"] = [int(b.rng.integers(1, 3)) for _ in places]
    if dilated and b.chance(0.2):
        attributes["dilations"] = [int(b.rng.integers(1, 3)) for _ in places]
    form = b.rng.random()
    if form < 0.2:
        attributes["auto_pad"] = b.choose(["SAME_UPPER", "SAME_LOWER", "VALID"])
    elif form < 0.7:
        most = [min(2, size - 1) for size in kernel]
        attributes["pads"] = [int(b.rng.integers(0, size + 1)) for size in most + most]
    return attributes


def conv(b: GraphBuilder) -> Any:
    """Add a convolution over 1 to 3 dimensions, grouped or depthwise at times."""
    source = b.pick(least=3, most=5)
    channels = b.shape(source)[1]
    groups = b.choose([g for g in range(1, channels + 1) if channels % g == 0]) if b.chance(0.3) else 1
    filters = groups * int(b.rng.integers(1, 6 if groups > 1 else 21))
    attributes = _window(b, source)
    kernel = attributes["kernel_shape"]
    fan_in = channels // groups * math.prod(kernel)
    inputs = [source, b.weight(filters, channels // groups, *kernel, fan_in=fan_in)]
    if b.chance(0.6):
        inputs.append(b.weight(filters, fan_in=1, stem="bias"))
    if groups > 1 or b.chance(0.3):
        attributes["group"] = groups
    if b.chance(0.2):
        del attributes["kernel_shape"]
    return b.add("Conv", *inputs, **attributes)


def conv_transpose(b: GraphBuilder) -> Any:
    """Add a transposed convolution."""
    source = b.pick(least=3, most=4)
    channels = b.shape(source)[1]
    groups = b.choose([g for g in range(1, channels + 1) if channels % g == 0]) if b.chance(0.2) else 1
    kernel = [int(b.rng.integers(1, 4)) for _ in b.shape(source)[2:]]
    filters = int(b.rng.integers(1, 6))
    attributes: dict[str, Any] = {"kernel_shape": kernel, "group": groups}
    if b.chance(0.6):
        attributes["strides"] = [int(b.rng.integers(1, 3)) for _ in kernel]
    if b.chance(0.4):
        attributes["pads"] = [int(b.rng.integers(0, size)) for size in kernel + kernel]
    inputs = [source, b.weight(channels, filters, *kernel)]
    if b.chance(0.5):
        inputs.append(b.weight(filters * groups, fan_in=1, stem="bias"))
    return b.add("ConvTranspose", *inputs, **attributes)


def gemm(b: GraphBuilder) -> Any:
    """Add a Gemm, transposed and scaled at times."""
    if not b.floats(2, 2):
        b.add("Flatten", b.pick(least=3))
    source = b.pick(2)
    rows, depth = b.shape(source)
    attributes: dict[str, Any] = {}
    if b.chance(0.15):
        attributes["transA"], rows, depth = 1, depth, rows
    columns = int(b.rng.integers(1, 13))
    shape = (depth, columns)
    if b.chance(0.5):
        attributes["transB"], shape = 1, (columns, depth)
    if b.chance(0.2):
        attributes["alpha"] = float(b.rng.uniform(0.2, 2))
    if b.chance(0.2):
        attributes["beta"] = float(b.rng.uniform(0.2, 2))
    inputs = [source, b.weight(*shape, fan_in=depth)]
    if b.opset < 11 or b.chance(0.7):
        bias = b.choose([(columns,), (columns,), (1, columns), (rows, columns), (rows, 1), (1,)])
        inputs.append(b.weight(*bias, fan_in=1, stem="bias"))
    return b.add("Gemm", *inputs, **attributes)


def matmul(b: GraphBuilder) -> Any:
    """Add a product with a constant on either side, or of two activations; with a bias at times."""
    source = b.pick(least=2)
    shape = b.shape(source)
    kind = b.rng.random()
    if kind < 0.65:
        columns = int(b.rng.integers(1, 13))
        ahead = shape[:-2] if b.chance(0.15) else ()
        weight = b.weight(*ahead, shape[-1], columns, fan_in=shape[-1])
        result = b.add("MatMul", source, weight)
        if b.chance(0.5):
            pair = [result, b.weight(columns, fan_in=1, stem="bias")]
            result = b.add("Add", *(pair if b.chance(0.7) else pair[::-1]))
        return result
    if kind < 0.8:
        return b.add("MatMul", b.weight(int(b.rng.integers(1, 9)), shape[-2], fan_in=shape[-2]), source)
    order = list(range(len(shape)))
    order[-2:] = order[-1], order[-2]
    return b.add("MatMul", source, b.add("Transpose", source, perm=order))


def projections(b: GraphBuilder) -> Any:
    """Add an attention head: three products with biases of one tensor, and their products."""
    source = b.pick(3)
    width = b.shape(source)[-1]
    q, k, v = (
        b.add("Add", b.add("MatMul", source, b.weight(width, 4, fan_in=width)), b.weight(4, fan_in=1)) for _ in range(3)
    )
    scores = b.add("MatMul", q, b.add("Transpose", k, perm=[0, 2, 1]))
    if b.chance(0.5):
        scores = b.add("Div", scores, b.constant(2.0))
    return b.add("MatMul", b.add("Softmax", scores, axis=2), v)


def normalization(b: GraphBuilder) -> Any:
    """Add BatchNormalization, InstanceNormalization or LRN."""
    source = b.pick(least=3)
    channels = b.shape(source)[1]
    kind = b.rng.random()
    if kind < 0.7:
        statistics = b.positive(channels), b.weight(channels, fan_in=1), b.weight(channels, fan_in=1)
        attributes = {"epsilon": 1e-3} if b.chance(0.5) else {}
        return b.add("BatchNormalization", source, *statistics, b.positive(channels), **attributes)
    if kind < 0.85:
        return b.add("InstanceNormalization", source, b.positive(channels), b.weight(channels, fan_in=1))
    return b.add("LRN", source, size=3)


def layer_norm(b: GraphBuilder) -> Any:
    """Add a LayerNormalization, as one node or as the chain that exporters write."""
    source = b.pick(least=2)
    width = b.shape(source)[-1]
    if b.opset >= 17 and b.chance(0.4):
        return b.add("LayerNormalization", source, b.positive(width), b.weight(width, fan_in=1), axis=-1)
    axis = len(b.shape(source)) - 1
    centred = b.add("Sub", source, b.axes("ReduceMean", source, [axis], 18))
    squared = b.add("Pow", centred, b.constant(2.0)) if b.chance(0.6) else b.add("Mul", centred, centred)
    spread = b.add("Sqrt", b.add("Add", b.axes("ReduceMean", squared, [axis], 18), b.constant(1e-5)))
    return b.add("Add", b.add("Mul", b.add("Div", centred, spread), b.positive(width)), b.weight(width, fan_in=1))


def activation(b: GraphBuilder) -> Any:
    """Add one of the activation functions."""
    source = b.pick(least=1)
    kind = b.choose(_ACTIVATIONS)
    if kind == "Clip":
        low, high = sorted(float(x) for x in b.rng.choice([-1.0, 0.0, 0.0, 0.5, 1.0, 6.0], 2))
        if b.opset < 11:
            return b.add("Clip", source, **{k: v for k, v in (("min", low), ("max", high)) if b.chance(0.8)})
        bounds = [b.constant(low) if b.chance(0.8) else "", b.constant(high) if b.chance(0.8) else ""]
        return b.add("Clip", source, *bounds[: b.choose([1, 2, 2])])
    if kind == "PRelu":
        shape = b.shape(source)
        slopes = b.choose([(1,), (shape[1], *[1] * (len(shape) - 2))] if len(shape) > 1 else [(1,)])
        return b.add("PRelu", source, b.weight(*slopes, fan_in=4))
    if kind in ("LeakyRelu", "Elu"):
        return b.add(kind, source, **({"alpha": float(b.rng.uniform(0, 1.2))} if b.chance(0.6) else {}))
    if kind == "HardSigmoid":
        return b.add(kind, source, **({"alpha": 1 / 6, "beta": 0.5} if b.chance(0.6) else {}))
    if kind == "HardSwishChain":
        gate = b.add("HardSigmoid", source, alpha=1 / 6, beta=0.5)
        return b.add("Mul", source, gate)
    if kind == "Swish":
        return b.add("Mul", source, b.add("Sigmoid", source))
    if kind == "Gelu":
        return _gelu(b, source)
    needs = {"HardSwish": 14, "Mish": 18, "Erf": 9}
    if b.opset < needs.get(kind, 7):
        kind = "Tanh"
    return b.add(kind, source)


def _gelu(b: GraphBuilder, source: str) -> Any:
    """Add a GELU, as one node or as the chain that exporters write."""
    if b.opset >= 20 and b.chance(0.5):
        return b.add("Gelu", source, approximate=b.choose(["none", "tanh"]))
    if b.opset < 9:
        raise Rejected("no Erf")
    inner = b.add("Erf", b.add("Div", source, b.constant(math.sqrt(2))))
    factor = b.add("Add", inner, b.constant(1.0))
    if b.chance(0.5):
        return b.add("Mul", b.add("Mul", source, factor), b.constant(0.5))
    return b.add("Mul", b.add("Mul", source, b.constant(0.5)), factor)


def softmax(b: GraphBuilder) -> Any:
    """Add Softmax, LogSoftmax or Hardmax over any axis."""
    source = b.pick(least=1)
    attributes: dict[str, Any] = {}
    if b.chance(0.8):
        attributes["axis"] = int(b.rng.integers(0 if b.opset < 11 else -1, len(b.shape(source))))
    return b.add(b.choose(["Softmax", "Softmax", "LogSoftmax", "Hardmax"]), source, **attributes)


def pool(b: GraphBuilder) -> Any:
    """Add a pool with padding, or a global one."""
    source = b.pick(least=3, most=5)
    kind = b.choose(
        ["MaxPool", "MaxPool", "AveragePool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "LpPool"]
    )
    if kind.startswith("Global"):
        return b.add(kind, source)
    attributes = _window(
        b, source, dilated=(kind == "MaxPool" and b.opset >= 10) or (b.opset >= 19 and kind != "LpPool")
    )
    if kind == "AveragePool" and b.chance(0.4):
        attributes["count_include_pad"] = 1
    steps = attributes.get("strides", attributes["kernel_shape"])
    ends = attributes.get("pads", [])[len(steps) :] or [0] * len(steps)
    # Of windows that begin behind the image ONNX Runtime's inference of shapes and its kernels think differently.
    inside = all(step <= size - end for size, end, step in zip(attributes["kernel_shape"], ends, steps, strict=True))
    if kind != "LpPool" and b.opset >= 10 and "auto_pad" not in attributes and inside and b.chance(0.4):
        attributes["ceil_mode"] = 1
    return b.add(kind, source, **attributes)


def binary(b: GraphBuilder) -> Any:
    """Add arithmetic of two activations, or of one and a constant that is broadcast."""
    source = b.pick(least=1)
    shape = b.shape(source)
    op = b.choose(["Add", "Add", "Add", "Mul", "Mul", "Sub", "Div", "Max", "Min", "Sum", "Mean", "Pow"])
    others = [name for name in b.floats() if b.shape(name) == shape]
    if others and b.chance(0.6) and op not in ("Div", "Pow"):
        return b.add(op, *b.rng.permutation([source, b.choose(others)]))
    form = b.choose([(), (1,), shape[-1:], (shape[1] if len(shape) > 1 else 1, *[1] * max(0, len(shape) - 2)), shape])
    other = b.constant(2.0) if op == "Pow" else b.positive(*form) if op == "Div" else b.weight(*form, fan_in=1)
    if op in ("Max", "Min", "Sum", "Mean") and b.opset < 8:
        raise Rejected("not broadcast")
    return b.add(op, *([source, other] if op in ("Div", "Pow") or b.chance(0.7) else [other, source]))


def recurrent(b: GraphBuilder) -> Any:
    """Add an LSTM or GRU over the first axis of a sequence."""
    source = b.pick(3)
    width, hidden = b.shape(source)[-1], int(b.rng.integers(1, 6))
    op, gates = b.choose([("LSTM", 4), ("LSTM", 4), ("GRU", 3)])
    way, number = b.choose([("forward", 1), ("reverse", 1), ("bidirectional", 2)])
    inputs = [source, b.weight(number, gates * hidden, width, fan_in=width)]
    inputs.append(b.weight(number, gates * hidden, hidden, fan_in=hidden))
    if b.chance(0.6):
        inputs.append(b.weight(number, 2 * gates * hidden, fan_in=1))
    every, last, *_ = b.add(op, *inputs, outputs=gates - 1, hidden_size=hidden, direction=way)
    if b.chance(0.5):
        return b.axes("Squeeze", last, [0], 13) if number == 1 else last
    return b.axes("Squeeze", every, [1], 13) if number == 1 else every


def embedding(b: GraphBuilder) -> Any:
    """Add rows of a table that an integer input looks up; some tables are large enough to be quantized."""
    rows, width = (b.choose([(2048, 8), (4096, 4)])) if b.chance(0.4) else (int(b.rng.integers(2, 30)), 6)
    kind = b.choose(["int64", "int32"])
    places = b.input((2, int(b.rng.integers(1, 6))), kind, limit=rows, stem="ids")
    return b.add("Gather", b.weight(rows, width, fan_in=1), places, axis=0)


def selection(b: GraphBuilder) -> Any:
    """Add a Where, whose condition is computed or an input."""
    source = b.pick(least=1)
    if b.opset < 9:
        raise Rejected("no Where")
    condition = b.add("Greater", source, b.constant(0.0))
    others = [name for name in b.floats() if b.shape(name) == b.shape(source)]
    return b.add(
        "Where", condition, source, b.choose(others) if b.chance(0.6) else b.constant(b.choose([0.0, -1e4, 1.0]))
    )
