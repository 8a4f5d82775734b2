"""Transposes: those that cancel go, and elementwise ops on images with channels last move before the Transpose.

Exporters of frameworks with channels last put a Transpose behind each convolution and another one before the next. What
stands between them (bias, normalization, activation and residual sums) cannot go into the convolution while its
channels
lie elsewhere. Before the Transpose it can, and two Transposes that meet cancel.
"""

from __future__ import annotations

import itertools

import numpy as np
from onnx import NodeProto, helper

from quaver.adapters.onnxrt.load.graph import Graph, attribute
from quaver.adapters.onnxrt.optimize.graph_edit import keep_loadable, producer
from quaver.types import Array

_ALONE = {"Relu", "LeakyRelu", "Sigmoid", "HardSigmoid", "HardSwish", "Tanh", "Clip", "Elu", "Gelu"}
_PAIRS = {"Add", "Sub", "Mul", "Div"}
# A bound for hostile models: real ones have a handful of ops between two Transposes.
_MAX_BETWEEN = 32


def move_transposes(graph: Graph) -> int:
    """Move elementwise ops before the Transpose they read, and return how many were moved."""
    moved = 0
    for node in [node for node in graph.nodes if node.op_type in _ALONE | _PAIRS and node.domain in ("", "ai.onnx")]:
        moved += _move(graph, node)
    if moved:
        _cancel(graph)
    return moved


def cancel_pairs(graph: Graph) -> int:
    """Drop Transposes that cancel, also around elementwise ops, and join those that follow each other.

    Returns:
        How many Transposes went.
    """
    before = _count(graph)
    for node in [node for node in graph.nodes if node.op_type == "Transpose" and node.domain in ("", "ai.onnx")]:
        if _order(node):
            _move_to_counterpart(graph, node)
    _cancel(graph)
    _join(graph)
    gone = before - _count(graph)
    if gone:
        keep_loadable(graph)
    return gone


def _count(graph: Graph) -> int:
    return sum(node.op_type == "Transpose" for node in graph.nodes)


def _move_to_counterpart(graph: Graph, transpose: NodeProto) -> None:
    """Move the elementwise ops between a Transpose and the one that undoes it, if nothing else reads their results."""
    order, tip = _order(transpose), transpose.output[0]
    between: list[NodeProto] = []
    while (node := graph.only_reader(tip)) is not None and node.op_type in _ALONE | _PAIRS and not node.domain:
        if sum(1 for name in node.input if name and name not in graph.constants) != 1 or len(between) == _MAX_BETWEEN:
            return
        between.append(node)
        tip = node.output[0]
    if node is None or not between or node.op_type != "Transpose" or _composed(order, _order(node)) != sorted(order):
        return
    constants = [{} if op.op_type == "Clip" else _transposed_back(graph, op, order) for op in between]
    if any(values is None for values in constants):
        return
    for op, values in zip(between, constants, strict=True):
        for slot, value in (values or {}).items():
            name = graph.free_name(f"{op.input[slot]}.transposed_back")
            graph.constants[name] = value
            op.input[slot] = name
    first, last = between[0], between[-1]
    first.input[list(first.input).index(transpose.output[0])] = transpose.input[0]
    last.output[0] = node.output[0]
    for op, reader in itertools.pairwise(between):  # their results have another layout now
        name = graph.free_name(f"{op.output[0]}.transposed_back")
        graph.ranks[name] = len(order)
        if op.output[0] in graph.types:
            graph.types[name] = graph.types[op.output[0]]
        reader.input[list(reader.input).index(op.output[0])] = name
        op.output[0] = name
    gone = {id(node), id(transpose)}
    graph.nodes = [other for other in graph.nodes if id(other) not in gone]
    graph.merge(last.name, node.name, transpose.name)
    graph.index()


def _composed(first: list[int], second: list[int]) -> list[int]:
    """Return the order of one Transpose that does what two do; empty if the order of one is not written."""
    return [first[axis] for axis in second] if len(first) == len(second) else []


def _join(graph: Graph) -> None:
    """Let each Transpose behind another one read what that one reads."""
    for node in graph.nodes:
        before = producer(graph, node.input[0], "Transpose") if node.op_type == "Transpose" else None
        if before is None or node.domain or graph.only_reader(before.output[0]) is not node:
            continue
        order = _composed(_order(before), _order(node))
        if not order or order == sorted(order):
            continue
        node.input[0] = before.input[0]
        del node.attribute[:]
        node.attribute.append(helper.make_attribute("perm", order))
        graph.merge(node.name, before.name)
        graph.index()
    _drop_idle(graph)


def _move(graph: Graph, node: NodeProto) -> bool:
    """Put a node before the Transposes that it reads."""
    slots = [slot for slot, name in enumerate(node.input) if name and name not in graph.constants]
    transposed = [_to_the_end(graph, node.input[slot]) for slot in slots]
    first = transposed[0] if transposed else None
    if first is None or any(transpose is None or _order(transpose) != _order(first) for transpose in transposed):
        return False
    order = _order(first)
    constants = {} if node.op_type == "Clip" else _transposed_back(graph, node, order)
    if constants is None or len(node.output) != 1:
        return False
    for slot, transpose in zip(slots, transposed, strict=True):
        assert transpose is not None
        node.input[slot] = transpose.input[0]
    for slot, values in constants.items():
        name = graph.free_name(f"{node.input[slot]}.channels_first")
        graph.constants[name] = values
        node.input[slot] = name
    result = node.output[0]
    node.output[0] = graph.free_name(f"{result}.channels_first")
    graph.types[node.output[0]], graph.ranks[node.output[0]] = graph.types[result], len(order)
    behind = NodeProto()
    behind.CopyFrom(first)
    behind.name = graph.free_name(f"{node.name}.channels_last")
    behind.input[0], behind.output[0] = node.output[0], result
    at = next(index for index, other in enumerate(graph.nodes) if other is node)
    graph.nodes.insert(at + 1, behind)
    graph.index()
    return True


def _to_the_end(graph: Graph, name: str) -> NodeProto | None:
    """Return the Transpose that writes a tensor, if it moves channels from behind the batch to the end."""
    node = producer(graph, name, "Transpose")
    order = [] if node is None else _order(node)
    return node if len(order) > 2 and order == [0, *range(2, len(order)), 1] else None


def _order(node: NodeProto) -> list[int]:
    entry = attribute(node, "perm")
    return [] if entry is None else [int(axis) for axis in entry.ints]


def _transposed_back(graph: Graph, node: NodeProto, order: list[int]) -> dict[int, Array] | None:
    """Return the constants of a node in the layout before the Transpose; None if one would add axes."""
    constants = {}
    for slot, name in enumerate(node.input):
        value = graph.constants.get(name)
        if value is None or value.size == 1:
            if value is not None and value.ndim > len(order):
                return None
            continue
        if value.ndim > len(order):
            return None
        whole = value.reshape([1] * (len(order) - value.ndim) + list(value.shape))
        constants[slot] = np.ascontiguousarray(whole.transpose(np.argsort(order)))
    return constants


def _cancel(graph: Graph) -> None:
    """Let readers skip two Transposes that cancel, and drop Transposes that nothing reads."""
    for node in [node for node in graph.nodes if node.op_type == "Transpose"]:
        before = producer(graph, node.input[0], "Transpose")
        if before is None or node.output[0] in graph.pinned or not _order(before) or not _order(node):
            continue
        first, second = _order(before), _order(node)
        if [first[axis] for axis in second] == list(range(len(first))):
            for index in graph.consumers.get(node.output[0], []):
                reader = graph.nodes[index]
                for slot, name in enumerate(reader.input):
                    if name == node.output[0]:
                        reader.input[slot] = before.input[0]
            graph.index()
    _drop_idle(graph)


def _drop_idle(graph: Graph) -> None:
    while idle := [id(node) for node in graph.nodes if _is_idle(graph, node)]:
        graph.nodes = [node for node in graph.nodes if id(node) not in idle]
        graph.index()


def _is_idle(graph: Graph, node: NodeProto) -> bool:
    result = node.output[0] if node.op_type == "Transpose" else ""
    return bool(result) and result not in graph.pinned and not graph.consumers.get(result)
