"""Which nodes a user can toggle, and which follow along. MXNet itself says which have an int8 kernel."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from quaver.adapters.mxnet.read.graph import Graph, Node
from quaver.ops import FLOAT, INT8, Op, OpConfig

# MXNet's "naive" and "entropy".
CALIBRATIONS = ("minmax", "entropy")
# They only move values about, and run in int8 where what they move is in int8.
_MOVEMENT = frozenset({"Flatten"})
# oneDNN's convolution takes a scale for each output channel, whatever `quantize_granularity` says; that setting is about
# fully connected layers, and tensor-wise.
_CHANNELS = frozenset({"Convolution"})


@dataclass(frozen=True, slots=True)
class Unit:
    """An op as the adapter sees it.

    Attributes:
        op: what the user sees.
        node: where it stands in the graph.
    """

    op: Op
    node: Node


def find_units(graph: Graph, quantizable: Iterable[str], usual: Iterable[str]) -> list[Unit]:
    """The nodes that MXNet can quantize, in graph order. Those that it would leave alone by itself are fp32 at first."""
    offered, default = set(quantizable), set(usual)
    return [
        Unit(_op(node, node.name in default), node)
        for node in graph.in_order()
        if node.name in offered and node.kind not in _MOVEMENT
    ]


def find_followers(graph: Graph, quantizable: Iterable[str]) -> dict[str, str]:
    """For each node that only moves values about, the node that wrote them."""
    offered = set(quantizable)
    found = {}
    for node in graph.in_order():
        if node.name in offered and node.kind in _MOVEMENT:
            writer = graph.nodes.get(node.inputs[0][0])
            found[node.name] = "" if writer is None else writer.name
    return found


def _op(node: Node, pays: bool) -> Op:
    granularity = "per_channel" if node.kind in _CHANNELS else "per_tensor"
    int8 = tuple(OpConfig(INT8, calibration, granularity, "sym") for calibration in CALIBRATIONS)
    return Op(node.name, node.kind, node.nodes, (*int8, FLOAT) if pays else (FLOAT, *int8))
