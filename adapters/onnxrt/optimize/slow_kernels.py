"""Slow kernels: ops that ONNX Runtime computes many times faster when several of its other kernels do the work.

`docs/kernels.md` has the times of both forms. No new node is an op that can run in int8 by itself: sums and products
of two computed tensors are written as Sub, Pow or Max, so that the tuning space stays as it was.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from onnx import NodeProto, helper

from quaver.adapters.onnxrt.load.graph import Graph, attribute, integer, real
from quaver.adapters.onnxrt.optimize.graph_edit import is_float32, producer, removable_chain, replace_nodes

# Since this opset all ops below have the form that is written here; older models are converted before.
OPSET = 13
# exp(x) + 1 is exp(x) in float32 beyond 17, so a larger bound changes no result, and exp(30) squared is finite.
_LARGEST_EXPONENT = 30.0
# ReduceMax reads its axes from an input since this opset, ReduceSum since 13.
_AXES_INPUT = 18
# A Softmax over few places along the other axes is faster as it is (docs/kernels.md).
_MIN_PLACES = 16
# What a Softmax may read that applies a mask: exclusions of the tuning space look for a Softmax behind it.
_MASKING = ("Add", "Mul", "Sub", "Where")
_MOVING = ("Flatten", "Reshape", "Squeeze", "Transpose", "Unsqueeze")
# Square windows of this size are two narrow windows in less time, in fp32 and on uint8 (docs/kernels.md).
_LARGE_WINDOW = 5


class _Formula:
    """Nodes that take the place of others, written one after the other."""

    def __init__(self, graph: Graph, last: NodeProto) -> None:
        self._graph, self._last = graph, last
        self.nodes: list[NodeProto] = []

    def number(self, label: str, value: float) -> str:
        """Add a float32 constant, and return its name."""
        return self.array(label, np.array(value, np.float32))

    def array(self, label: str, value: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> str:
        """Add a constant, and return its name."""
        name = self._graph.free_name(f"{self._last.output[0]}.{label}")
        self._graph.constants[name] = value
        return name

    def node(self, label: str, kind: str, *inputs: str, **attributes: Any) -> str:
        """Add a node, and return the name of what it writes."""
        name = self._graph.free_name(f"{self._last.output[0]}.{label}")
        self.nodes.append(helper.make_node(kind, inputs, [name], name=f"{self._last.name}.{label}", **attributes))
        return name

    def replace(self, *old: NodeProto) -> None:
        """Let the nodes take the place of old ones. The last one writes what the last old one wrote."""
        self.nodes[-1].output[0], self.nodes[-1].name = self._last.output[0], self._last.name
        replace_nodes(self._graph, old or [self._last], self.nodes)


def spell_out_elu(graph: Graph) -> int:
    """Replace each Elu by Max(x, alpha (exp(min(x, 0)) - 1)), and return how many there were."""
    nodes = _float_nodes(graph, "Elu")
    for node in nodes:
        alpha, x = real(node, "alpha", 1.0), node.input[0]
        formula = _Formula(graph, node)
        power = formula.node("exp", "Exp", formula.node("below", "Min", x, formula.number("zero", 0.0)))
        if 0.0 <= alpha <= 1.0:  # then alpha (exp(x) - 1) is at least x where x < 0
            below = formula.node("less_one", "Add", power, formula.number("minus_one", -1.0))
            if alpha != 1.0:
                below = formula.node("scaled", "Mul", below, formula.number("alpha", alpha))
            formula.node("max", "Max", x, below)
        else:
            loss = formula.node("loss", "Sub", formula.number("one", 1.0), power)
            scaled = formula.node("scaled", "Mul", loss, formula.number("alpha", alpha))
            formula.node("sum", "Sub", formula.node("above", "Relu", x), scaled)
        formula.replace()
    return len(nodes)


def spell_out_softplus(graph: Graph) -> int:
    """Replace each Mish and Softplus by exponentials and quotients, and return how many there were.

    Mish(x) is x tanh(log(1 + e)) = x (1 - 2 / ((1 + e)^2 + 1)) with e = exp(x).
    """
    count = 0
    for node in _float_nodes(graph, "Mish"):
        _mish(graph, node.input[0], [node])
        count += 1
    for node in _float_nodes(graph, "Softplus"):
        chain = _mish_chain(graph, node)
        if chain is not None:
            _mish(graph, node.input[0], chain)
        else:
            x, formula = node.input[0], _Formula(graph, node)
            above_one = _above_one(formula, x)
            formula.node("max", "Max", x, formula.node("log", "Log", above_one))
            formula.replace()
        count += 1
    return count


def _above_one(formula: _Formula, x: str) -> str:
    """Write 1 + exp(x) in nodes."""
    bounded = formula.node("bounded", "Min", x, formula.number("bound", _LARGEST_EXPONENT))
    return formula.node("above_one", "Add", formula.node("exp", "Exp", bounded), formula.number("one", 1.0))


def _mish_chain(graph: Graph, softplus: NodeProto) -> list[NodeProto] | None:
    """Return the nodes of x * Tanh(Softplus(x)), if nothing else reads what is between them."""
    tanh = graph.only_reader(softplus.output[0])
    product = graph.only_reader(tanh.output[0]) if tanh is not None and tanh.op_type == "Tanh" else None
    if tanh is None or product is None or product.op_type != "Mul" or product.domain:
        return None
    if sorted(product.input) != sorted([softplus.input[0], tanh.output[0]]):
        return None
    return removable_chain(graph, [softplus, tanh, product])


def _mish(graph: Graph, x: str, old: list[NodeProto]) -> None:
    formula = _Formula(graph, old[-1])
    square = formula.node("square", "Pow", _above_one(formula, x), formula.number("two", 2.0))
    more = formula.node("more", "Add", square, formula.number("one_more", 1.0))
    loss = formula.node("loss", "Div", formula.number("double", 2.0), more)
    gate = formula.node("gate", "Sub", formula.number("whole", 1.0), loss)
    formula.node("product", "Mul", x, gate)
    formula.replace(*old)


# Chains of ops that are the power with an exponent: the runtime has a fast kernel for the exponents 2 and 3 alone.
_POWERS: dict[float, tuple[str, ...]] = {
    0.5: ("Sqrt",), 0.25: ("Sqrt", "Sqrt"), -0.5: ("Sqrt", "Reciprocal"), -1.0: ("Reciprocal",),
    4.0: ("Square", "Square"), -2.0: ("Square", "Reciprocal"),
}  # fmt: skip


def spell_out_powers(graph: Graph) -> int:
    """Replace each Pow that a root, a reciprocal or squares can compute, and return how many there were."""
    count = 0
    for node in _float_nodes(graph, "Pow"):
        exponent = graph.constants.get(node.input[1])
        if exponent is None or exponent.size != 1 or exponent.ndim > graph.ranks.get(node.input[0], 0):
            continue
        kinds = _POWERS.get(float(exponent.reshape(())))
        if kinds is None or node.input[0] in graph.constants:
            continue
        formula, value = _Formula(graph, node), node.input[0]
        for number, kind in enumerate(kinds):
            if kind == "Square":
                value = formula.node(f"square_{number}", "Pow", value, formula.number(f"two_{number}", 2.0))
            else:
                value = formula.node(f"{kind.lower()}_{number}", kind, value)
        formula.replace()
        count += 1
    return count


def spell_out_softmax(graph: Graph) -> int:
    """Replace each Softmax over an axis that is not the last by exponentials and sums, and return how many there were.

    The runtime transposes for such a Softmax. One behind a sum or a selection stays, because it may apply a mask.
    LogSoftmax is treated in the same way.
    """
    count = 0
    for node in [*_float_nodes(graph, "Softmax"), *_float_nodes(graph, "LogSoftmax")]:
        x, rank = node.input[0], graph.ranks.get(node.input[0], 0)
        if rank == 0 or node.input[0] in graph.constants:
            continue
        axis = integer(node, "axis", -1) % rank
        places = math.prod(graph.shapes[x][axis + 1 :]) if x in graph.shapes else _MIN_PLACES
        if axis == rank - 1 or places < _MIN_PLACES or _may_be_masked(graph, x):
            continue
        formula = _Formula(graph, node)
        axes = formula.array("axis", np.array([axis], np.int64))
        if graph.opset >= _AXES_INPUT:
            largest = formula.node("largest", "ReduceMax", x, axes)
        else:
            largest = formula.node("largest", "ReduceMax", x, axes=[axis])
        difference = formula.node("difference", "Sub", x, largest)
        power = formula.node("exp", "Exp", difference)
        total = formula.node("sum", "ReduceSum", power, axes)
        if node.op_type == "Softmax":
            formula.node("quotient", "Div", power, total)
        else:
            formula.node("rest", "Sub", difference, formula.node("log", "Log", total))
        formula.replace()
        count += 1
    return count


def _may_be_masked(graph: Graph, name: str) -> bool:
    while (node := producer(graph, name, *_MOVING)) is not None:
        name = node.input[0]
    return producer(graph, name, *_MASKING) is not None


def simplify_nearest(graph: Graph) -> int:
    """Let each nearest Resize by whole factors compute its places by the faster formula; return how many changed.

    Place i reads place floor(i / factor), with half pixels and rounding too: (i + 0.5) / factor - 0.5 lies less than
    half a place from it.
    """
    count = 0
    for node in graph.nodes:
        if node.op_type != "Resize" or node.domain not in ("", "ai.onnx") or not _by_whole_factors(graph, node):
            continue
        mode, places = _text(node, "mode", "nearest"), _text(node, "coordinate_transformation_mode", "half_pixel")
        rounding = _text(node, "nearest_mode", "round_prefer_floor")
        if mode != "nearest" or places not in ("half_pixel", "pytorch_half_pixel") or "round" not in rounding:
            continue
        kept = [entry for entry in node.attribute if entry.name not in _PLACES]
        del node.attribute[:]
        node.attribute.extend(kept)
        node.attribute.extend(helper.make_attribute(name, value) for name, value in _PLACES.items())
        count += 1
    return count


_PLACES = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}


def _by_whole_factors(graph: Graph, node: NodeProto) -> bool:
    """Return True if a Resize enlarges each axis by a constant whole number."""
    if attribute(node, "axes") is not None or len(node.input) < 3:
        return False
    scales = graph.constants.get(node.input[2]) if node.input[2] else None
    if scales is not None and scales.size:
        return bool(np.all(scales >= 1) and np.all(scales == np.round(scales)))
    sizes = graph.constants.get(node.input[3]) if len(node.input) > 3 else None
    shape = graph.shapes.get(node.input[0])
    if sizes is None or shape is None or len(sizes) != len(shape):
        return False
    return all(size >= before and size % before == 0 for size, before in zip(sizes.tolist(), shape, strict=True))


def split_large_pools(graph: Graph) -> int:
    """Make two narrow windows of each large MaxPool that moves by one place, and return how many there were."""
    count = 0
    for node in [node for node in graph.nodes if node.op_type == "MaxPool" and node.domain in ("", "ai.onnx")]:
        window, pads = _ints(node, "kernel_shape", []), _ints(node, "pads", [0, 0, 0, 0])
        moves = [*_ints(node, "strides", []), *_ints(node, "dilations", [])]
        if len(window) != 2 or min(window) < _LARGE_WINDOW or any(step != 1 for step in moves):
            continue
        if len([name for name in node.output if name]) > 1 or integer(node, "ceil_mode", 0):
            continue
        if _text(node, "auto_pad", "NOTSET") != "NOTSET" or len(pads) != 4:
            continue
        formula = _Formula(graph, node)
        (height, width), (top, left, bottom, right) = window, pads
        columns = formula.node(
            "columns", "MaxPool", node.input[0], kernel_shape=[height, 1], pads=[top, 0, bottom, 0], strides=[1, 1]
        )
        formula.node("rows", "MaxPool", columns, kernel_shape=[1, width], pads=[0, left, 0, right], strides=[1, 1])
        formula.replace()
        count += 1
    return count


def _float_nodes(graph: Graph, kind: str) -> list[NodeProto]:
    return [
        node
        for node in graph.nodes
        if node.op_type == kind and node.domain in ("", "ai.onnx") and is_float32(graph, node.input[0])
    ]


def _text(node: NodeProto, name: str, default: str) -> str:
    entry = attribute(node, name)
    return default if entry is None else entry.s.decode()


def _ints(node: NodeProto, name: str, default: list[int]) -> list[int]:
    entry = attribute(node, name)
    return default if entry is None else [int(value) for value in entry.ints]
