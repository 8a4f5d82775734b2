"""Paddings that ONNX Runtime's optimizer gets wrong.

It moves a Transpose through a Pad that lists its axes as if it listed none, and the model fails when it runs. So the
amounts of such a Pad are written for all axes.

The optimizer moves a Pad with zeros into the AveragePool or MaxPool behind it. This is another function if a window
rounds up (`ceil_mode`), if a MaxPool reads negative values, because a pooling op pads with minus infinity, or if an
AveragePool leaves its own padding out of the mean. If the padding is as wide as the window, the model does not load.
The optimizer only fuses a fill whose bytes are all zero, so negative zero keeps the two apart at no cost.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, helper, numpy_helper

from quaver.adapters.onnxrt.load.graph import Graph, attribute, integer, subgraphs
from quaver.adapters.onnxrt.load.shape_inference import infer_types
from quaver.types import Array

_POOLS = ("AveragePool", "MaxPool")
_LOOKED_THROUGH = ("Cast", "Dropout", "Identity")
# Ops that write no negative value.
_POSITIVE = ("HardSigmoid", "Relu", "Sigmoid", "Softmax")
_FLOATS: dict[int, Any] = {
    TensorProto.FLOAT: np.float32,
    TensorProto.DOUBLE: np.float64,
    TensorProto.FLOAT16: np.float16,
}


def pad_all_axes(graph: Graph) -> int:
    """Write the amounts of each Pad with a constant list of axes for all axes, and return how many there were."""
    changed = 0
    for node in list(graph.nodes):
        if node.op_type != "Pad" or node.domain or len(node.input) < 4 or not node.input[3]:
            continue
        if not graph.ranks:
            infer_types(graph)
        axes, rank = graph.constants.get(node.input[3]), graph.ranks.get(node.input[0])
        if axes is None or rank is None:
            continue
        places = np.concatenate([axes.reshape(-1) % rank, axes.reshape(-1) % rank + rank]).astype(np.int64)
        node.input[1] = _amounts_of_all_axes(graph, node, places, rank)
        del node.input[3:]
        if not node.input[2]:
            del node.input[2:]
        changed += 1
        graph.index()
    return changed


def _amounts_of_all_axes(graph: Graph, node: NodeProto, places: Array, rank: int) -> str:
    """Write the amounts of a Pad at these places among zeros, and return their name. A node does it if they vary."""
    amounts = graph.constants.get(node.input[1])
    zeros, name = np.zeros(2 * rank, np.int64), graph.free_name(f"{node.output[0]}.pads")
    if amounts is not None:
        zeros[places] = amounts.reshape(-1)
        graph.constants[name] = zeros
        return name
    inputs = [graph.free_name(f"{name}.{part}") for part in ("zeros", "places")]
    graph.constants.update(zip(inputs, (zeros, places), strict=True))
    scatter = helper.make_node("ScatterElements", [*inputs, node.input[1]], [name], name, axis=0)
    graph.nodes.insert(graph.nodes.index(node), scatter)
    return name


def keep_padding_before_pools(graph: Graph) -> int:
    """Fill with negative zero where the runtime would fuse a Pad into a pooling op wrongly.

    Returns:
        How many Pads were changed, those in bodies of If, Loop and Scan among them.
    """
    changed = 0
    for node in graph.nodes:
        pool = _pool_behind(graph, node)
        if pool is None or _is_fused_rightly(graph, node, pool):
            continue
        fill = _negative_zero(graph, node)
        if fill is not None:
            name = graph.free_name(f"{node.output[0]}.fill")
            graph.constants[name] = fill
            _set_fill(node, name)
            changed += 1
            graph.index()
    return changed + sum(_keep_in_body(body) for node in graph.nodes for body in subgraphs(node))


def _pool_behind(graph: Graph, node: NodeProto) -> NodeProto | None:
    """Return the pooling op that alone reads a Pad with a constant, behind ops that the runtime looks through."""
    if not _pads_with_a_constant(node):
        return None
    reader = graph.only_reader(node.output[0])
    while reader is not None and reader.op_type in _LOOKED_THROUGH:
        reader = graph.only_reader(reader.output[0])
    return reader if reader is not None and reader.op_type in _POOLS and not reader.domain else None


def _pads_with_a_constant(node: NodeProto) -> bool:
    """Return True for a Pad that the runtime may fuse: a constant, and no list of axes."""
    mode = attribute(node, "mode")
    return (
        node.op_type == "Pad" and not node.domain and len(node.input) in (2, 3)
        and (mode is None or mode.s == b"constant")
    )  # fmt: skip


def _is_fused_rightly(graph: Graph, node: NodeProto, pool: NodeProto) -> bool:
    """Return True if the runtime makes one op of both that computes the same."""
    window, own = _integers(pool, "kernel_shape"), _integers(pool, "pads")
    pads = graph.constants.get(node.input[1])
    if pads is None or integer(pool, "ceil_mode", 0) or not window or pads.size != 2 * (len(window) + 2):
        return False
    before = graph.producers.get(node.input[0])
    if before is not None and graph.nodes[before].op_type == "Pad":
        return False  # the runtime fuses both, and together they may be as wide as the window
    if pool.op_type == "MaxPool" and not _is_positive(graph, node.input[0]):
        return False
    if pool.op_type == "AveragePool" and any(own) and not integer(pool, "count_include_pad", 0):
        return False
    own = own or [0] * 2 * len(window)
    total = pads.reshape(2, -1)[:, 2:] + np.reshape(own, (2, -1))
    return bool((total < np.asarray(window)).all())


def _integers(node: NodeProto, name: str) -> list[int]:
    entry = attribute(node, name)
    return [] if entry is None else list(entry.ints)


def _is_positive(graph: Graph, name: str) -> bool:
    """Return True if no value of a tensor can be negative, as far as the op that writes it tells."""
    if name not in graph.producers:
        return False
    node = graph.nodes[graph.producers[name]]
    if node.op_type == "Clip":
        low = graph.constants.get(node.input[1]) if len(node.input) > 1 else None
        return low is not None and low.size == 1 and bool(low.reshape(()) >= 0)
    return node.op_type in _POSITIVE


def _negative_zero(graph: Graph, node: NodeProto) -> Array | None:
    """Return what a Pad fills with instead of zero; None if it fills with another number, or with integers."""
    fill = node.input[2] if len(node.input) > 2 else ""
    if fill:
        return _negated(graph.constants.get(fill))
    if not graph.types:
        infer_types(graph)
    kind = _FLOATS.get(graph.types.get(node.input[0], TensorProto.UNDEFINED))
    return None if kind is None else np.array(-0.0, kind)


def _negated(fill: Array | None) -> Array | None:
    """Return the negative zero of the same type and shape; None for what is no zero of a float type."""
    if fill is None or fill.dtype not in _FLOATS.values() or fill.size != 1 or fill.reshape(()) != 0:
        return None
    return np.full_like(fill, -0.0)


def _set_fill(node: NodeProto, name: str) -> None:
    if len(node.input) > 2:
        node.input[2] = name
    else:
        node.input.append(name)


def _keep_in_body(body: GraphProto) -> int:
    """Do the same in a body, for each Pad whose fill is written there; what it reads is not known."""
    readers: dict[str, list[NodeProto]] = {}
    for node in body.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    constants = {tensor.name: tensor for tensor in body.initializer} | dict(_constant_tensors(body.node))
    changed = 0
    for node in body.node:
        behind = readers.get(node.output[0], []) if _pads_with_a_constant(node) and len(node.input) > 2 else []
        tensor = constants.get(node.input[2]) if behind and behind[0].op_type in _POOLS else None
        fill = None if tensor is None else _negated(numpy_helper.to_array(tensor))
        if fill is not None:
            name = f"{node.output[0]}.fill"
            while name in constants or name in readers:
                name += "_"
            body.initializer.append(numpy_helper.from_array(fill, name))
            node.input[2] = name
            changed += 1
    return changed + sum(_keep_in_body(inner) for node in body.node for inner in subgraphs(node))


def _constant_tensors(nodes: Iterable[NodeProto]) -> Iterable[tuple[str, TensorProto]]:
    for node in nodes:
        entry = attribute(node, "value") if node.op_type == "Constant" else None
        if entry is not None:
            yield node.output[0], entry.t
