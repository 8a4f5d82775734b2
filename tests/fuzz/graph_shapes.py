"""Layers of random graphs that change the shape of a tensor: they pad, resize, join, cut, move and reduce it."""

from __future__ import annotations

from typing import Any

import numpy as np
from graph_builder import GraphBuilder

_MOVES = ("Transpose", "Transpose", "Reshape", "Reshape", "Flatten", "Unsqueeze", "Squeeze", "Identity", "Tile",
          "Expand", "DepthToSpace", "SpaceToDepth", "Dropout", "Dynamic", "Gather", "Cast")  # fmt: skip


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
    scales = [
        1.0,
        1.0,
        *(float(b.choose([1.0, 2.0, 2.0, 1.5, 0.5] if b.opset >= 10 else [1.0, 2.0, 1.5])) for _ in range(2)),
    ]
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
        return b.add(
            "Resize", source, empty, empty and b.constant(np.zeros(0)), b.constant(sizes, "int64"), **attributes
        )
    return b.add("Resize", source, empty, b.constant(scales), **attributes)


def concat(b: GraphBuilder) -> Any:
    """Add a Concat of tensors that differ in one axis at most, at times with a constant."""
    source = b.pick(least=1)
    shape = b.shape(source)
    axis = int(b.rng.integers(len(shape)))
    rest = [
        n
        for n in b.floats(len(shape), len(shape))
        if all(i == axis or p == q for i, (p, q) in enumerate(zip(shape, b.shape(n), strict=True)))
    ]
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
    kind = b.choose(_MOVES)
    if kind == "Transpose":
        return b.add(
            kind, source, **({"perm": [int(i) for i in b.rng.permutation(len(shape))]} if b.chance(0.9) else {})
        )
    if kind == "Reshape":
        wanted = b.choose(
            [[0, -1], [-1, shape[-1]], [0, 0, -1], [*shape], [-1], [shape[0], 1, -1], [shape[0], -1, 1, 1]]
        )
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
    op = b.choose(["ReduceMean", "ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceLogSumExp",
                   "ReduceL1", "ReduceSumSquare"])  # fmt: skip
    axes = sorted(int(i) for i in b.rng.choice(rank, int(b.rng.integers(1, min(rank, 2) + 1)), replace=False))
    if rank == 4 and b.chance(0.4):
        axes = [2, 3]
    keep = {} if b.chance(0.4) else {"keepdims": int(b.chance(0.5))}
    return b.axes(op, source, axes, 13 if op == "ReduceSum" else 18, **keep)
