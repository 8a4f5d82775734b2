"""Find the nodes that a user can toggle, and those that follow their neighbours. MXNet says which have an int8 kernel.

It distinguishes two kinds: nodes that are profitable by themselves (convolutions, fully connected layers), which are
ops; and nodes that are profitable only between two of the first kind (pooling, activations, BatchNorm, concat, sums).
These are followers: they run in int8 where their neighbours do, and in fp32 elsewhere, by MXNet's "smart" mode.

"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container
from dataclasses import dataclass

from quaver.adapters.mxnet.load.graph import Graph, Node
from quaver.ops import FLOAT, INT8, Op, OpConfig
from quaver.unquantizable import Unquantizable

# MXNet calls them "naive" and "entropy".
CALIBRATIONS = ("minmax", "entropy")
# What MXNet is told; see the next comment.
QUANTIZE_GRANULARITY = "tensor-wise"
# oneDNN's convolution always has a scale for each output channel. `quantize_granularity` only affects fully connected
# layers, and is tensor-wise here.
_CHANNELS = frozenset({"Convolution"})


@dataclass(frozen=True, slots=True)
class Unit:
    """An op and its node.

    Attributes:
        op: what the user sees.
        node: where it stands in the graph.
    """

    op: Op
    node: Node


def find_units(graph: Graph, profitable: Container[str]) -> list[Unit]:
    """Return the nodes that are profitable by themselves, in graph order."""
    return [Unit(_op(node), node) for node in graph.in_order() if node.name in profitable]


def _op(node: Node) -> Op:
    granularity = "per_channel" if node.kind in _CHANNELS else "per_tensor"
    int8 = tuple(OpConfig(INT8, calibration, granularity, "sym") for calibration in CALIBRATIONS)
    return Op(node.name, node.kind, node.nodes, (*int8, FLOAT))


# Operators that only move values, or do nothing outside training.
_NON_COMPUTING = frozenset({
    "Flatten", "Reshape", "_copy", "transpose", "expand_dims", "squeeze", "slice", "slice_axis", "SliceChannel",
    "Dropout", "BlockGrad", "Cast", "SwapAxis", "broadcast_to", "tile", "repeat", "stack", "_zeros", "_ones", "_arange",
    "shape_array", "Pad", "reshape_like",
})  # fmt: skip


def unquantizable_nodes(graph: Graph, quantizable: Container[str]) -> dict[str, str]:
    """Return the kind of each node that computes and has no int8 kernel, by its name."""
    return {
        node.name: node.kind
        for node in graph.in_order()
        if node.name not in quantizable and node.kind not in _NON_COMPUTING
    }


def unquantizable(graph: Graph, quantizable: Container[str]) -> list[Unquantizable]:
    """Return the number of such nodes of each kind, in graph order."""
    counts = Counter(unquantizable_nodes(graph, quantizable).values())
    return [Unquantizable(kind, count) for kind, count in counts.items()]
