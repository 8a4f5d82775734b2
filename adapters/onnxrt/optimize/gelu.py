"""GELU: the five to nine nodes that exporters write, recognised as one operator.

The runtime recognises the chain in a float model. Behind an int8 op it does not: each reader gets a DequantizeLinear of
its own, and the chain no longer starts at one tensor.
"""

from __future__ import annotations

import math

from onnx import NodeProto, helper

from quaver.adapters.onnxrt.load.graph import Graph
from quaver.adapters.onnxrt.optimize.graph_edit import (
    is_close,
    is_float32,
    number,
    producer,
    removable_chain,
    removable_producer,
    replace_nodes,
    scaling_factor,
)

OPSET = 20
# The argument of the inner function, as coefficients of x, x^2, ...; the numbers are those of the definition of GELU.
_INNER = {
    "Erf": ("none", {1: math.sqrt(0.5)}),
    "Tanh": ("tanh", {1: math.sqrt(2 / math.pi), 3: math.sqrt(2 / math.pi) * 0.044715}),
}
_DEEPEST = 8

Polynomial = dict[int, float]


def recognise_gelu(graph: Graph) -> int:
    """Replace each chain that computes a GELU, and return how many there were."""
    chains = find_gelu(graph)
    for x, approximate, chain in chains:
        last = chain[-1]
        gelu = helper.make_node("Gelu", [x], [last.output[0]], name=last.name, approximate=approximate)
        replace_nodes(graph, chain, [gelu])
    return len(chains)


def find_gelu(graph: Graph) -> list[tuple[str, str, list[NodeProto]]]:
    """Return the input of each GELU, its `approximate` attribute, and its nodes in graph order."""
    matches = (_gelu(graph, node) for node in graph.nodes if node.op_type in _INNER and not node.domain)
    return [match for match in matches if match is not None]


def _gelu(graph: Graph, inner: NodeProto) -> tuple[str, str, list[NodeProto]] | None:
    approximate, wanted = _INNER[inner.op_type]
    plus_one = graph.only_reader(inner.output[0])
    if plus_one is None or plus_one.op_type != "Add":
        return None
    one_name = next((name for name in plus_one.input if name != inner.output[0]), "")
    if number(graph, one_name, inner.output[0]) != 1.0:
        return None
    climbed = _times_half_x(graph, plus_one)
    if climbed is None or not is_float32(graph, climbed[0]):
        return None
    x, product = climbed
    below: list[NodeProto] = []
    if not is_close(_polynomial(graph, inner.input[0], x, below, _DEEPEST), wanted):
        return None
    chain = removable_chain(graph, [*below, inner, plus_one, *product])
    return None if chain is None else (x, approximate, chain)


def _times_half_x(graph: Graph, start: NodeProto) -> tuple[str, list[NodeProto]] | None:
    """Return x and the nodes that multiply the output of `start` by x / 2, in whatever order."""
    nodes: list[NodeProto] = []
    x, constant, tip = "", 1.0, start.output[0]
    while not (x and is_close(constant, 0.5)):
        node = graph.only_reader(tip)
        if node is None or node.op_type not in ("Mul", "Div"):
            return None
        scaled = scaling_factor(graph, node)
        if scaled is not None:
            constant *= scaled[1]
        elif not x and node.op_type == "Mul" and list(node.input).count(tip) == 1:
            x = next(name for name in node.input if name != tip)
            half = removable_producer(graph, x, "Mul", "Div")
            if half is not None and (scaled := scaling_factor(graph, half)) is not None:
                x, constant = scaled[0], constant * scaled[1]
                nodes.append(half)
        else:
            return None
        nodes.append(node)
        tip = node.output[0]
    return x, nodes


def _polynomial(graph: Graph, name: str, x: str, below: list[NodeProto], depth: int) -> Polynomial | None:
    """Return a tensor as a polynomial of x, or None; the nodes that compute it are added to `below`."""
    if name == x:
        return {1: 1.0}
    if (value := number(graph, name, x)) is not None:
        return {0: value}
    node = producer(graph, name, "Add", "Mul", "Div", "Pow")
    if node is None or depth == 0:
        return None
    if not any(node is other for other in below):
        below.append(node)
    left, right = (_polynomial(graph, part, x, below, depth - 1) for part in node.input)
    if left is None or right is None:
        return None
    if node.op_type == "Add":
        return {power: left.get(power, 0.0) + right.get(power, 0.0) for power in left | right}
    if node.op_type == "Mul":
        return _times(left, right)
    if set(right) != {0} or right[0] == 0:
        return None
    if node.op_type == "Div":
        return {power: value / right[0] for power, value in left.items()}
    return _power(left, right[0])


def _times(left: Polynomial, right: Polynomial) -> Polynomial:
    product: Polynomial = {}
    for left_power, a in left.items():
        for right_power, b in right.items():
            product[left_power + right_power] = product.get(left_power + right_power, 0.0) + a * b
    return product


def _power(base: Polynomial, exponent: float) -> Polynomial | None:
    if exponent not in (1.0, 2.0, 3.0):
        return None
    result: Polynomial = {0: 1.0}
    for _ in range(int(exponent)):
        result = _times(result, base)
    return result
