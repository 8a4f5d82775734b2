"""Convolutions over one axis, turned so that this axis is the last one of an image of one row.

The runtime's kernels compute along the last axis. On images [N, C, T, 1] with kernels k x 1 they copy single numbers,
and signals [N, C, T] have no fast layout in float at all. On [N, C, 1, T] both run as fast as they can
(docs/kernels.md). All ops that can work on such images are turned together, with one op at each border.
"""

from __future__ import annotations

import numpy as np
from onnx import NodeProto, helper

from quaver.adapters.onnxrt.load.graph import Graph, attribute
from quaver.adapters.onnxrt.load.shape_inference import Dimensions, dimensions, infer_types
from quaver.adapters.onnxrt.optimize.graph_edit import is_float32, keep_loadable
from quaver.types import Array

_ALONE = {
    "BatchNormalization", "Clip", "Elu", "Erf", "Exp", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Log", "Neg",
    "Reciprocal", "Relu", "Sigmoid", "Softplus", "Sqrt", "Tanh",
}  # fmt: skip
_PAIRS = {"Add", "Div", "Max", "Min", "Mul", "Pow", "PRelu", "Sub"}
_WINDOWS = {"AveragePool", "Conv", "MaxPool"}
# Of a region, one convolution must have as many taps. Shorter ones take the same time in both layouts, or nearly so
# (docs/kernels.md).
_MIN_TAPS = {"column": 8, "signal": 3}
_SWAP = [0, 1, 3, 2]


def turn_columns(graph: Graph) -> int:
    """Turn images of one column into images of one row, around convolutions; return how many nodes changed."""
    return _turn_regions(graph, "column")


def widen_signals(graph: Graph) -> int:
    """Turn signals into images of one row, around convolutions; return how many nodes changed."""
    return _turn_regions(graph, "signal")


def _turn_regions(graph: Graph, form: str) -> int:
    if not any(_is_long(graph, node, form) for node in graph.nodes):
        return 0
    dims = dimensions(graph)
    count = 0
    for region in _regions(graph, dims, form):
        if any(_is_long(graph, node, form) for node in region):
            _turn(graph, region, form)
            count += len(region)
    if count:
        keep_loadable(graph)
        infer_types(graph)
    return count


def _is_long(graph: Graph, node: NodeProto, form: str) -> bool:
    """Return True for a convolution over one axis with many taps."""
    weight = graph.constants.get(node.input[1]) if node.op_type == "Conv" and len(node.input) > 1 else None
    is_alike = weight is not None and weight.ndim == _RANKS[form] and (form == "signal" or weight.shape[3] == 1)
    return is_alike and weight is not None and weight.shape[2] >= _MIN_TAPS[form]


_RANKS = {"column": 4, "signal": 3}


def _regions(graph: Graph, dims: Dimensions, form: str) -> list[list[NodeProto]]:
    """Return the nodes that can be turned, those that hand tensors to each other together."""
    turnable = {index: node for index, node in enumerate(graph.nodes) if _can_turn(graph, dims, node, form)}
    regions, seen = [], set[int]()
    for start in turnable:
        region, waiting = [], [start]
        while waiting:
            index = waiting.pop()
            if index in seen:
                continue
            seen.add(index)
            region.append(index)
            node = turnable[index]
            beside = [graph.producers[name] for name in _activations(graph, node) if name in graph.producers]
            beside += graph.consumers.get(node.output[0], [])
            waiting += [other for other in beside if other in turnable]
        if region:
            regions.append([graph.nodes[index] for index in sorted(region)])
    return regions


def _activations(graph: Graph, node: NodeProto) -> list[str]:
    return [name for name in node.input if name and name not in graph.constants]


def _can_turn(graph: Graph, dims: Dimensions, node: NodeProto, form: str) -> bool:
    """Return True if a node reads and writes tensors of this form, and can do so in another layout."""
    if node.domain not in ("", "ai.onnx") or len([name for name in node.output if name]) != 1:
        return False
    tensors = [*_activations(graph, node), node.output[0]]
    if len(tensors) < 2 or not all(_has_form(dims.get(name), form) and is_float32(graph, name) for name in tensors):
        return False
    if node.op_type in _ALONE:
        return True
    constants = {slot: graph.constants[name] for slot, name in enumerate(node.input) if name in graph.constants}
    if node.op_type in _PAIRS:
        return all(value.size == 1 or _fits(value, form) for value in constants.values())
    return node.op_type in _WINDOWS and _moves_along_one_axis(node, constants.get(1), form)


def _has_form(shape: tuple[int | str | None, ...] | None, form: str) -> bool:
    if shape is None or len(shape) != _RANKS[form]:
        return False
    return form == "signal" or (shape[3] == 1 and shape[2] != 1)


def _fits(value: Array, form: str) -> bool:
    """Return True if a constant has a counterpart for the other layout."""
    return value.ndim <= _RANKS[form] and (form == "signal" or value.shape[-1] == 1)


def _moves_along_one_axis(node: NodeProto, weight: Array | None, form: str) -> bool:
    automatic = attribute(node, "auto_pad")
    if automatic is not None and automatic.s not in (b"NOTSET", b""):
        return False
    if node.op_type == "Conv" and (weight is None or weight.ndim != _RANKS[form]):
        return False
    if form == "signal":
        return True
    pads, steps = _numbers(node, "pads", [0] * 4), _numbers(node, "strides", [1, 1])
    window = _numbers(node, "kernel_shape", []) if weight is None else list(weight.shape[2:])
    return len(window) == 2 and window[1] == 1 and not pads[1] and not pads[3] and steps[1] == 1


def _numbers(node: NodeProto, name: str, default: list[int]) -> list[int]:
    entry = attribute(node, name)
    return default if entry is None or not entry.ints else [int(value) for value in entry.ints]


def _turn(graph: Graph, region: list[NodeProto], form: str) -> None:
    """Change the nodes of a region, and put an op that only moves values where a tensor enters or leaves it."""
    inside = {id(node) for node in region}
    written = {node.output[0] for node in region}
    turned: dict[str, str] = {}
    before: dict[int, list[NodeProto]] = {}
    after: dict[int, NodeProto] = {}
    for node in region:
        for name in _activations(graph, node):
            if name not in turned and name not in written:
                turned[name] = _named_like(graph, name)
                before.setdefault(id(node), []).append(_border(graph, form, name, turned[name], entering=True))
        result = node.output[0]
        turned[result] = _named_like(graph, result)
        readers = [graph.nodes[index] for index in graph.consumers.get(result, [])]
        if result in graph.pinned or any(id(reader) not in inside for reader in readers):
            after[id(node)] = _border(graph, form, turned[result], result, entering=False)
        _turn_attributes(node, form)
        _turn_constants(graph, node, form)
    nodes: list[NodeProto] = []
    for node in graph.nodes:
        nodes += before.get(id(node), [])
        nodes.append(node)
        if id(node) in inside:
            for names in (node.input, node.output):
                renamed = [turned.get(name, name) for name in names]
                del names[:]
                names.extend(renamed)
        if id(node) in after:
            nodes.append(after[id(node)])
    graph.nodes = nodes
    graph.index()


def _named_like(graph: Graph, name: str) -> str:
    """Return a name for a tensor in the other layout: nothing may take it for the user's."""
    other = graph.free_name(f"{name}.row")
    graph.types[other], graph.ranks[other] = graph.types[name], 4
    return other


def _border(graph: Graph, form: str, source: str, target: str, entering: bool) -> NodeProto:
    """Return the node that gives a tensor the other layout when it enters a region, or its own when it leaves."""
    name = f"{target}.{'turned' if entering else 'turned_back'}"  # several regions may read one source
    if form == "column":
        return helper.make_node("Transpose", [source], [target], name, perm=_SWAP)
    axis = graph.free_name(f"{target}.axis")
    graph.constants[axis] = np.array([2], np.int64)
    return helper.make_node("Unsqueeze" if entering else "Squeeze", [source, axis], [target], name)


# By attribute, the entry of an axis of one place that is written before each entry of a signal.
_FILL = {"kernel_shape": 1, "strides": 1, "dilations": 1, "pads": 0}


def _turn_attributes(node: NodeProto, form: str) -> None:
    """Change the attributes of a convolution or pool."""
    for entry in node.attribute:
        if node.op_type in _WINDOWS and entry.name in _FILL and entry.ints:
            values = [int(value) for value in entry.ints]
            if form == "column":
                changed = [values[at ^ 1] for at in range(len(values))]  # pads: top, left, bottom, right
            else:
                changed = [number for value in values for number in (_FILL[entry.name], value)]
            del entry.ints[:]
            entry.ints.extend(changed)


def _turn_constants(graph: Graph, node: NodeProto, form: str) -> None:
    for slot, name in enumerate(node.input):
        value = graph.constants.get(name)
        is_weight = node.op_type == "Conv" and slot == 1
        if value is None or not (is_weight or (node.op_type in _PAIRS and value.ndim >= 2)):
            continue
        wanted = graph.free_name(f"{name}.row")
        changed = np.swapaxes(value, -1, -2) if form == "column" else np.expand_dims(value, -2)
        graph.constants[wanted] = np.ascontiguousarray(changed)
        node.input[slot] = wanted
