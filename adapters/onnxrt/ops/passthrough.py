"""Passthrough ops: on integers they do what they do on floats, and the scale stays the same.

ONNX Runtime has 8-bit kernels for them, but does not use them by itself: DequantizeLinear and QuantizeLinear around a
`Pad` stay where they are. Between two int8 ops these are two conversions for nothing.
"""

from __future__ import annotations

from onnx import NodeProto, TensorProto

from quaver.adapters.onnxrt.load.graph import Graph, attribute, integer

# On integers these are a lower and an upper bound.
BOUNDED = {"Relu", "Clip", "Max", "Min"}
_AS_THEY_ARE = {"ReduceMax", "ReduceMin", "SpaceToDepth"}


def passed_through(graph: Graph, node: NodeProto) -> str | None:
    """Return the tensor that a node hands on, clipped, padded or reduced to some values; None for other nodes."""
    if node.op_type in ("Max", "Min"):
        return _beside_a_number(graph, node)
    first = str(node.input[0])
    if first in graph.constants:
        return None
    if node.op_type in _AS_THEY_ARE or node.op_type == "Relu":
        return first
    if node.op_type == "Clip":
        return first if all(_is_number(graph, bound) for bound in node.input[1:] if bound) else None
    if node.op_type == "GlobalMaxPool":
        return first if graph.ranks.get(first, 0) > 2 else None
    if node.op_type == "Pad":
        return first if _pads_with_zeros_or_itself(graph, node) else None
    return None


def is_global_average_pool(graph: Graph, node: NodeProto) -> bool:
    """Return True for a ReduceMean over all places of an image: a GlobalAveragePool by another name."""
    entry = attribute(node, "axes")
    axes = list(entry.ints) if entry is not None else []
    if len(node.input) > 1:
        axes_constant = graph.constants.get(node.input[1])
        axes = [] if axes_constant is None else axes_constant.reshape(-1).tolist()
    return graph.ranks.get(node.input[0]) == 4 and sorted(axis % 4 for axis in axes) == [2, 3]


def has_int8_average(node: NodeProto) -> bool:
    """Return True if the integer kernel of an AveragePool computes what the float one does.

    It does not support dilations. With `ceil_mode` it adds windows that begin behind the image, which the float kernel
    leaves out.
    """
    if attribute(node, "dilations") is not None:
        return False
    if not integer(node, "ceil_mode", 0):
        return True
    kernel, has_padding, strides = (attribute(node, name) for name in ("kernel_shape", "pads", "strides"))
    if kernel is None or attribute(node, "auto_pad") is not None:
        return False
    lengths = list(kernel.ints)
    ends = [0] * len(lengths) if has_padding is None else list(has_padding.ints)[len(lengths) :]
    steps = [1] * len(lengths) if strides is None else list(strides.ints)
    return all(step <= length - end for length, end, step in zip(lengths, ends, steps, strict=True))


def bounds(graph: Graph, node: NodeProto) -> tuple[float | None, float | None]:
    """Return the numbers between which a node of `BOUNDED` leaves its input unchanged."""
    if node.op_type == "Relu":
        return 0.0, None
    if node.op_type in ("Max", "Min"):
        number = next(_number(graph, name) for name in node.input if name in graph.constants)
        return (number, None) if node.op_type == "Max" else (None, number)
    low, high = (*(_number(graph, name) if name else None for name in node.input[1:3]), None, None)[:2]
    return low, high


def _beside_a_number(graph: Graph, node: NodeProto) -> str | None:
    """Return what a node compares with a single number, if the number adds no axis."""
    activations = [str(name) for name in node.input if name not in graph.constants]
    numbers = [name for name in node.input if name in graph.constants]
    if len(activations) != 1 or len(numbers) != 1 or not _is_number(graph, numbers[0]):
        return None
    return activations[0] if graph.constants[numbers[0]].ndim <= graph.ranks.get(activations[0], 0) else None


def _pads_with_zeros_or_itself(graph: Graph, node: NodeProto) -> bool:
    """Return True for a Pad with zeros or copies of the input: zero is exact in any scale, other numbers may lie
    outside it.

    Negative zero keeps the runtime from fusing the Pad into a pooling op. No integer does, so such a Pad stays float.
    """
    mode = attribute(node, "mode")
    if mode is not None and mode.s != b"constant":
        return True
    value = node.input[2] if len(node.input) > 2 else ""
    return not value or (_is_number(graph, value) and str(_number(graph, value)) == "0.0")


def _is_number(graph: Graph, name: str) -> bool:
    return name in graph.constants and graph.constants[name].size == 1


def _number(graph: Graph, name: str) -> float:
    return float(graph.constants[name].reshape(()))


# They share the scale of what they move, and run in int8 when both sides do.
MOVEMENT = {
    "DepthToSpace", "Dropout", "Expand", "Flatten", "Gather", "Identity", "MaxPool", "Reshape", "Slice", "Split",
    "Squeeze", "Tile", "Transpose", "Unsqueeze",
}  # fmt: skip


def scale_roots(graph: Graph) -> dict[str, str]:
    """Return, for each moved tensor, the tensor it was before it was moved: both share one scale."""
    roots: dict[str, str] = {}
    for node in graph.nodes:
        if is_movement(graph, node):
            source = node.input[0]
            for name in node.output:
                if name:
                    roots[name] = roots.get(source, source)
    return roots


def is_movement(graph: Graph, node: NodeProto) -> bool:
    """Return True if a node only moves float values of its first input."""
    if node.domain not in ("", "ai.onnx") or not node.input or graph.types.get(node.input[0]) != TensorProto.FLOAT:
        return False
    if node.op_type == "Resize":
        mode = attribute(node, "mode")
        return mode is None or mode.s == b"nearest"
    if node.op_type in ("MaxPool", "Dropout") and len([name for name in node.output if name]) > 1:
        return False
    return node.op_type in MOVEMENT and node.input[0] not in graph.constants


def may_shrink_cubically(graph: Graph, node: NodeProto) -> bool:
    """Return True for a cubic Resize that makes an axis shorter, or may do so."""
    mode = attribute(node, "mode")
    if node.domain not in ("", "ai.onnx") or node.op_type != "Resize" or mode is None or mode.s != b"cubic":
        return False
    scales = graph.constants.get(node.input[2]) if len(node.input) > 2 else None
    return scales is None or scales.size == 0 or bool((scales < 1).any())
