"""The layers that random graphs are made of, each in the form that its opset asks for."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from graph_builder import GraphBuilder, Rejected

Layer = Callable[[GraphBuilder], Any]


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
    kind = b.choose(["Relu", "Relu", "Relu", "Clip", "Clip", "LeakyRelu", "PRelu", "Elu", "HardSigmoid", "HardSwish",
                     "Sigmoid", "Tanh", "Gelu", "Swish", "HardSwishChain", "Softplus", "Selu", "Mish", "Erf", "Exp"])  # fmt: skip
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
    kind = b.choose(["MaxPool", "MaxPool", "AveragePool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "LpPool"])
    if kind.startswith("Global"):
        return b.add(kind, source)
    attributes = _window(b, source, dilated=(kind == "MaxPool" and b.opset >= 10) or (b.opset >= 19 and kind != "LpPool"))
    if kind == "AveragePool" and b.chance(0.4):
        attributes["count_include_pad"] = 1
    steps = attributes.get("strides", attributes["kernel_shape"])
    ends = attributes.get("pads", [])[len(steps) :] or [0] * len(steps)
    # Of windows that begin behind the image ONNX Runtime's inference of shapes and its kernels think differently.
    inside = all(step <= size - end for size, end, step in zip(attributes["kernel_shape"], ends, steps, strict=True))
    if kind != "LpPool" and b.opset >= 10 and "auto_pad" not in attributes and inside and b.chance(0.4):
        attributes["ceil_mode"] = 1
    return b.add(kind, source, **attributes)


def pad(b: GraphBuilder) -> Any:
    """Add a Pad of any mode."""
    source = b.pick(least=2)
    rank = len(b.shape(source))
    mode = b.choose(["constant", "constant", "reflect", "edge"])
    pads = [0 if axis < 2 and rank > 2 else int(b.rng.integers(0, 3)) for axis in range(rank)] * 2
    pads[rank:] = [int(b.rng.integers(0, 3)) if size else 0 for size in pads[rank:]]
    if mode == "constant" and b.chance(0.15):
        pads[int(b.rng.integers(len(pads)))] = -1
    number = float(b.choose([0.0, 0.0, 1.0, -3.0]))
    if b.opset < 11:
        return b.add("Pad", source, mode=mode, pads=pads, **({"value": number} if mode == "constant" else {}))
    inputs = [source, b.constant(pads, "int64", "pads")]
    if mode == "constant" and b.chance(0.7):
        inputs.append(b.constant(number))
    return b.add("Pad", *inputs, mode=mode)


def resize(b: GraphBuilder) -> Any:
    """Add a Resize or Upsample of any mode that the opset has."""
    source = b.pick(4)
    scales = [1.0, 1.0, *(float(b.choose([1.0, 2.0, 2.0, 1.5, 0.5] if b.opset >= 10 else [1.0, 2.0, 1.5])) for _ in range(2))]
    mode = b.choose(["nearest", "linear"])
    if b.opset < 9:
        return b.add("Upsample", source, mode=mode, scales=scales)
    if b.opset == 9:
        return b.add("Upsample", source, b.constant(scales), mode=mode)
    if b.opset == 10:
        return b.add("Resize", source, b.constant(scales), mode=mode)
    attributes: dict[str, Any] = {"mode": b.choose([mode, mode, "cubic"])}
    if b.chance(0.7):
        attributes["coordinate_transformation_mode"] = b.choose(
            ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"]
        )
    if attributes["mode"] == "nearest" and b.chance(0.7):
        attributes["nearest_mode"] = b.choose(["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"])
    empty = "" if b.opset >= 13 or b.chance(0.5) else b.constant(np.zeros(0))
    if b.chance(0.3):
        shape = b.shape(source)
        sizes = [*shape[:2], *(int(place * b.choose([1, 2, 3])) for place in shape[2:])]
        return b.add("Resize", source, empty, empty and b.constant(np.zeros(0)), b.constant(sizes, "int64"), **attributes)
    return b.add("Resize", source, empty, b.constant(scales), **attributes)


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


def concat(b: GraphBuilder) -> Any:
    """Add a Concat of tensors that differ in one axis at most, at times with a constant."""
    source = b.pick(least=1)
    shape = b.shape(source)
    axis = int(b.rng.integers(len(shape)))
    rest = [n for n in b.floats(len(shape), len(shape)) if all(i == axis or p == q for i, (p, q) in enumerate(zip(shape, b.shape(n))))]
    names = [source, *(b.choose(rest) for _ in range(int(b.rng.integers(1, 3))))]
    if b.chance(0.15):
        names.append(b.weight(*shape, fan_in=1))
    return b.add("Concat", *names, axis=axis)


def split(b: GraphBuilder) -> Any:
    """Add a Split in two."""
    source = b.pick(least=1)
    shape = b.shape(source)
    axis = b.choose([i for i, size in enumerate(shape) if size > 1] or [0])
    left = int(b.rng.integers(1, max(2, shape[axis])))
    parts = [left, shape[axis] - left]
    if b.opset < 13:
        return b.add("Split", source, outputs=2, axis=axis, split=parts)
    if b.opset >= 18 and b.chance(0.4):
        return b.add("Split", source, outputs=2, axis=axis, num_outputs=2)
    return b.add("Split", source, b.constant(parts, "int64"), outputs=2, axis=axis)


def slicing(b: GraphBuilder) -> Any:
    """Add a Slice of one or two axes, backwards at times."""
    source = b.pick(least=1)
    shape = b.shape(source)
    axis = int(b.rng.integers(len(shape)))
    start, end = int(b.rng.integers(0, max(1, shape[axis] // 2))), b.choose([shape[axis], -1, 2**31 - 1, 3])
    if b.opset < 10:
        return b.add("Slice", source, axes=[axis], starts=[start], ends=[end])
    step = b.choose([1, 1, 2])
    if b.chance(0.15):
        start, end, step = -1, -(2**31), -1
    inputs = [b.constant([number], "int64") for number in (start, end, axis, step)]
    return b.add("Slice", source, *inputs)


def movement(b: GraphBuilder) -> Any:
    """Add an op that only moves values about."""
    source = b.pick(least=1)
    shape = b.shape(source)
    kind = b.choose(["Transpose", "Transpose", "Reshape", "Reshape", "Flatten", "Unsqueeze", "Squeeze", "Identity",
                     "Tile", "Expand", "DepthToSpace", "SpaceToDepth", "Dropout", "Dynamic", "Gather", "Cast"])  # fmt: skip
    if kind == "Transpose":
        return b.add(kind, source, **({"perm": [int(i) for i in b.rng.permutation(len(shape))]} if b.chance(0.9) else {}))
    if kind == "Reshape":
        wanted = b.choose([[0, -1], [-1, shape[-1]], [0, 0, -1], [*shape], [-1], [shape[0], 1, -1], [shape[0], -1, 1, 1]])
        return b.add(kind, source, b.constant(wanted, "int64", "shape"))
    if kind == "Flatten":
        return b.add(kind, source, **({"axis": int(b.rng.integers(0, len(shape) + 1))} if b.chance(0.4) else {}))
    if kind == "Unsqueeze":
        return b.axes(kind, source, [int(b.rng.integers(0, len(shape) + 1))], 13)
    if kind == "Squeeze" and 1 in shape:
        return b.axes(kind, source, [i for i, size in enumerate(shape) if size == 1], 13)
    if kind == "Tile":
        return b.add(kind, source, b.constant([b.choose([1, 1, 2]) for _ in shape], "int64"))
    if kind == "Expand":
        return b.add(kind, source, b.constant([size if size > 1 else b.choose([1, 2]) for size in shape], "int64"))
    if kind in ("DepthToSpace", "SpaceToDepth"):
        return b.add(kind, source, blocksize=2)
    if kind == "Gather":
        axis = int(b.rng.integers(len(shape)))
        places = b.rng.integers(0, shape[axis], b.choose([(), (2,), (1, 2)]))
        return b.add(kind, source, b.constant(places, "int64"), axis=axis)
    if kind == "Cast":
        return b.add("Cast", b.add("Cast", source, to=b.choose([10, 11])), to=1)
    if kind == "Dynamic":
        return _reshaped_by_shape(b, source)
    return b.add(kind, source)


def _reshaped_by_shape(b: GraphBuilder, source: str) -> Any:
    """Add a Reshape whose shape is computed, as PyTorch writes `view(x.size(0), -1)`."""
    rows = b.add("Gather", b.add("Shape", source), b.constant(0, "int64"), axis=0)
    rows = b.axes("Unsqueeze", rows, [0], 13)
    return b.add("Reshape", source, b.add("Concat", rows, b.constant([-1], "int64"), axis=0))


def reduction(b: GraphBuilder) -> Any:
    """Add one of the reductions."""
    source = b.pick(least=1)
    rank = len(b.shape(source))
    op = b.choose(["ReduceMean", "ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceLogSumExp"])
    axes = sorted(int(i) for i in b.rng.choice(rank, int(b.rng.integers(1, min(rank, 2) + 1)), replace=False))
    if rank == 4 and b.chance(0.4):
        axes = [2, 3]
    keep = {} if b.chance(0.4) else {"keepdims": int(b.chance(0.5))}
    return b.axes(op, source, axes, 13 if op == "ReduceSum" else 18, **keep)


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
    return b.add("Where", condition, source, b.choose(others) if b.chance(0.6) else b.constant(b.choose([0.0, -1e4, 1.0])))
