"""Blocks of random graphs: several nodes as networks and exporters write them, and rarer ops."""

from __future__ import annotations

from typing import Any

import numpy as np
from graph_builder import GraphBuilder, Rejected
from onnx import FunctionProto, helper

FUNCTIONS_DOMAIN = "fuzz"


def padded_window(b: GraphBuilder) -> Any:
    """Add a Pad, with constant, computed or negative amounts, and a convolution or pool that reads it."""
    source = b.pick(4)
    amounts = [int(b.rng.integers(-1 if b.chance(0.1) else 0, 4)) for _ in range(4)]
    fill = float(b.choose([0.0, 0.0, 0.0, -0.0, 1.0, -1e4]))
    mode = b.choose(["constant", "constant", "constant", "edge", "reflect", "wrap" if b.opset >= 19 else "edge"])
    if b.opset < 11:
        pads = [0, 0, *amounts[:2], 0, 0, *amounts[2:]]
        padded = b.add("Pad", source, mode="constant", pads=pads, value=fill)
    else:
        by_axes = b.opset >= 18 and b.chance(0.4)
        wanted = b.constant(amounts if by_axes else [0, 0, *amounts[:2], 0, 0, *amounts[2:]], "int64", "pads")
        if b.chance(0.1):
            wanted = b.add("Identity", wanted)
        inputs = [source, wanted]
        if mode == "constant" and (by_axes or b.chance(0.6)):
            inputs.append(b.constant(fill) if b.chance(0.8) else "")
        if by_axes:
            inputs += [""] * (3 - len(inputs)) + [b.constant(b.choose([[2, 3], [-2, -1]]), "int64", "axes")]
        padded = b.add("Pad", *inputs, mode=mode)
    if b.chance(0.15):
        padded = b.add(b.choose(["Identity", "Dropout", "Relu"]), padded)
    channels, *places = b.shape(padded)[1:]
    kernel = [int(b.rng.integers(1, min(4, max(place, 1)) + 1)) for place in places]
    attributes: dict[str, Any] = {"kernel_shape": kernel, "strides": [int(b.rng.integers(1, 4)) for _ in kernel]}
    if b.chance(0.4):
        attributes["pads"] = [int(b.rng.integers(0, size)) for size in kernel + kernel]
    kind = b.choose(["Conv", "MaxPool", "AveragePool"])
    if kind == "Conv":
        return b.add(kind, padded, b.weight(int(b.rng.integers(1, 9)), channels, *kernel), **attributes)
    if b.opset >= 10 and "pads" not in attributes and b.chance(0.4):
        attributes["ceil_mode"] = 1
        attributes["strides"] = [min(pair) for pair in zip(kernel, attributes["strides"], strict=True)]
    if kind == "AveragePool" and b.chance(0.4):
        attributes["count_include_pad"] = 1
    return b.add(kind, padded, **attributes)


def large_pools(b: GraphBuilder) -> Any:
    """Add large MaxPools of one tensor side by side, as spatial pyramids do."""
    source = b.pick(4)
    sizes = [int(size) for size in b.rng.choice([3, 5, 7, 9], int(b.rng.integers(1, 3)), replace=False)]
    pools = [b.add("MaxPool", source, kernel_shape=[size] * 2, pads=[size // 2] * 4, strides=[1, 1]) for size in sizes]
    return b.add("Concat", source, *pools, axis=1)


def twins(b: GraphBuilder) -> Any:
    """Add two layers that share a weight, and at times a bias, and join what they make."""
    source = b.pick(least=2)
    shape = b.shape(source)
    others = [name for name in b.floats(len(shape), len(shape)) if b.shape(name) == shape]
    pair = [source, b.choose(others)]
    if len(shape) >= 3 and b.chance(0.6):
        weight = b.weight(int(b.rng.integers(1, 9)), shape[1], *[1] * (len(shape) - 2))
        shared = [weight, b.weight(b.shape(weight)[0], fan_in=1)] if b.chance(0.5) else [weight]
        results = [b.add("Conv", name, *shared) for name in pair]
    else:
        weight = b.weight(shape[-1], int(b.rng.integers(1, 9)), fan_in=shape[-1])
        results = [b.add("MatMul", name, weight) for name in pair]
    if b.chance(0.3):  # the weight is read as a tensor, too
        b.add("ReduceMean", weight, keepdims=0)
    return b.add(b.choose(["Add", "Sub", "Mul", "Max"]), *results)


def tied_embedding(b: GraphBuilder) -> Any:
    """Add a table that ids look up and a product with its transpose, as language models tie them."""
    rows, width = b.choose([(2048, 8), (12, 4), (30, 6)])
    table = b.weight(rows, width, fan_in=width)
    looked_up = b.add("Gather", table, b.input((2, 3), "int64", limit=rows, stem="ids"), axis=0)
    hidden = b.add("Tanh", b.add("MatMul", looked_up, b.weight(width, width)))
    return b.add("MatMul", hidden, b.add("Transpose", table, perm=[1, 0]))


def squeeze_excite(b: GraphBuilder) -> Any:
    """Add a gate for each channel: mean, two layers, a sigmoid and a product."""
    source = b.pick(4)
    channels = b.shape(source)[1]
    mean = b.add("GlobalAveragePool", source) if b.chance(0.6) else b.axes("ReduceMean", source, [2, 3], 18)
    inner = b.add("Relu", b.add("Conv", mean, b.weight(4, channels, 1, 1), b.weight(4, fan_in=1)))
    gate = b.add(b.choose(["Sigmoid", "HardSigmoid"]), b.add("Conv", inner, b.weight(channels, 4, 1, 1)))
    return b.add("Mul", *([source, gate] if b.chance(0.5) else [gate, source]))


def shuffle(b: GraphBuilder) -> Any:
    """Add a shuffle of channels: they are split in groups, swapped and joined."""
    source = b.pick(4)
    channels, *places = b.shape(source)[1:]
    if channels % 2:
        raise Rejected("an odd number of channels")
    split = b.add("Reshape", source, b.constant([-1, 2, channels // 2, *places], "int64", "shape"))
    swapped = b.add("Transpose", split, perm=[0, 2, 1, 3, 4])
    return b.add("Reshape", swapped, b.constant([-1, channels, *places], "int64", "shape"))


def computed_weight(b: GraphBuilder) -> Any:
    """Add a convolution or product whose weight another op makes of a constant."""
    source = b.pick(least=2, most=4)
    shape = b.shape(source)
    kind = b.choose(["Mul", "Tanh", "Identity", "Cast"])
    if len(shape) == 4:
        weight = b.weight(int(b.rng.integers(1, 9)), shape[1], 1, 1)
    else:
        weight = b.weight(shape[-1], int(b.rng.integers(1, 9)), fan_in=shape[-1])
    if kind == "Cast":
        made = b.add("Cast", b.add("Cast", weight, to=10), to=1)
    else:
        made = b.add(kind, weight, *([b.constant(2.0)] if kind == "Mul" else []))
    return b.add("Conv" if len(shape) == 4 else "MatMul", source, made)


def newer_norm(b: GraphBuilder) -> Any:
    """Add a normalization of newer opsets."""
    source = b.pick(least=3)
    shape = b.shape(source)
    if b.opset >= 23 and b.chance(0.5):
        return b.add("RMSNormalization", source, b.positive(shape[-1]), axis=-1)
    if b.opset < 21:
        raise Rejected("no GroupNormalization for each channel")
    groups = b.choose([size for size in range(1, shape[1] + 1) if shape[1] % size == 0])
    factors = b.positive(shape[1]), b.weight(shape[1], fan_in=1)
    return b.add("GroupNormalization", source, *factors, num_groups=groups)


def ordering(b: GraphBuilder) -> Any:
    """Add an op that counts, sorts or sums up along an axis; some write integers."""
    source = b.pick(least=1)
    axis = int(b.rng.integers(len(b.shape(source))))
    kind = b.choose(["TopK", "ArgMax", "CumSum", "Shape"])
    if kind == "TopK" and b.opset >= 10:
        return b.add(kind, source, b.constant([1], "int64"), outputs=2, axis=axis)
    if kind == "CumSum" and b.opset >= 11:
        return b.add(kind, source, b.constant(axis, "int64"))
    return b.add("Shape", source) if kind == "Shape" else b.add("ArgMax", source, axis=axis)


def picking(b: GraphBuilder) -> Any:
    """Add an op that reads or writes single places of a tensor."""
    source = b.pick(least=2)
    shape = b.shape(source)
    kind = b.choose(["GatherElements", "GatherND", "ScatterElements", "ScatterND"])
    if kind == "GatherElements":
        return b.add(kind, source, b.constant(np.zeros(shape), "int64"), axis=int(b.rng.integers(len(shape))))
    if kind == "GatherND":
        return b.add(kind, source, b.constant([[0], [shape[0] - 1]], "int64"))
    if kind == "ScatterElements":
        places = b.constant(np.zeros([1] * len(shape)), "int64")
        return b.add(kind, source, places, b.constant(np.full([1] * len(shape), 0.5)), axis=len(shape) - 1)
    return b.add(kind, source, b.constant([[0]], "int64"), b.weight(1, *shape[1:], fan_in=1))


def einsum(b: GraphBuilder) -> Any:
    """Add an Einsum with a constant or of two activations."""
    if b.opset < 12:
        raise Rejected("no Einsum")
    source = b.pick(3)
    if b.chance(0.6):
        weight = b.weight(b.shape(source)[-1], int(b.rng.integers(1, 9)))
        return b.add("Einsum", source, weight, equation="bij,jk->bik")
    return b.add("Einsum", source, source, equation="bij,bkj->bik")


def half_island(b: GraphBuilder) -> Any:
    """Add ops in float16 between two Casts."""
    inner = b.add("Cast", b.pick(least=1), to=10)
    return b.add("Cast", b.add(b.choose(["Relu", "Neg", "Abs"]), inner), to=1)


def local_function(b: GraphBuilder) -> Any:
    """Add a call of a function that the model holds, as newer exporters write activations and layers."""
    source = b.pick(least=2)
    root = b
    while root.parent is not None:
        root = root.parent
    kind = b.choose(["Gated", "Layer"])
    if kind not in root.functions:
        root.functions[kind] = _function(kind, b.opset)
    if kind == "Gated":
        return b.add(kind, source, domain=FUNCTIONS_DOMAIN)
    width = b.shape(source)[-1]
    return b.add(kind, source, b.weight(width, 4, fan_in=width), b.weight(4, fan_in=1), domain=FUNCTIONS_DOMAIN)


def _function(kind: str, opset: int) -> FunctionProto:
    if kind == "Gated":
        inputs = ["x"]
        nodes = [helper.make_node("Sigmoid", ["x"], ["g"]), helper.make_node("Mul", ["x", "g"], ["y"])]
    else:
        inputs = ["x", "w", "b"]
        nodes = [
            helper.make_node("MatMul", ["x", "w"], ["p"]),
            helper.make_node("Add", ["p", "b"], ["s"]),
            helper.make_node("Relu", ["s"], ["y"]),
        ]
    return helper.make_function(FUNCTIONS_DOMAIN, kind, inputs, ["y"], nodes, [helper.make_opsetid("", opset)])
