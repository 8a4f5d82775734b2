"""Which nodes a user can toggle, and which follow along. MXNet itself says which have an int8 kernel.

It knows two kinds: nodes that are worth it by themselves (convolutions, fully connected layers), which are ops; and
nodes that are worth it between two of the first kind only (pooling, activations, BatchNorm, concat, sums). These
follow: they run in int8 where their neighbours do, and in fp32 elsewhere, by MXNet's "smart" mode.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from quaver.adapters.mxnet.read.graph import Graph, Node
from quaver.ops import FLOAT, INT8, Op, OpConfig

# MXNet's "naive" and "entropy".
CALIBRATIONS = ("minmax", "entropy")
# oneDNN's convolution has a scale for each output channel, whatever `quantize_granularity` says: that is about fully
# connected layers, and tensor-wise here.
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


def find_units(graph: Graph, worth_it: Container[str]) -> list[Unit]:
    """The nodes that are worth it by themselves, in graph order."""
    return [Unit(_op(node), node) for node in graph.in_order() if node.name in worth_it]


def _op(node: Node) -> Op:
    granularity = "per_channel" if node.kind in _CHANNELS else "per_tensor"
    int8 = tuple(OpConfig(INT8, calibration, granularity, "sym") for calibration in CALIBRATIONS)
    return Op(node.name, node.kind, node.nodes, (*int8, FLOAT))
