"""Which nodes a user can toggle, and which follow along. MXNet itself says which have an int8 kernel.

It knows two kinds: nodes that are worth it by themselves (convolutions, fully connected layers), which are ops; and
nodes that are worth it between two of the first kind only (pooling, activations, BatchNorm, concat, sums). These
follow: they run in int8 where their neighbours do, and in fp32 elsewhere, by MXNet's "smart" mode.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container
from dataclasses import dataclass

from quaver.adapters.mxnet.load.graph import Graph, Node
from quaver.ops import FLOAT, INT8, Op, OpConfig
from quaver.unquantizable import Unquantizable

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


# They move values about, or do nothing when a model is not trained.
_STILL = frozenset({
    "Flatten", "Reshape", "_copy", "transpose", "expand_dims", "squeeze", "slice", "slice_axis", "SliceChannel",
    "Dropout", "BlockGrad", "Cast", "SwapAxis", "broadcast_to", "tile", "repeat", "stack", "_zeros", "_ones", "_arange",
    "shape_array", "Pad", "reshape_like",
})  # fmt: skip


def unquantizable_nodes(graph: Graph, quantizable: Container[str]) -> dict[str, str]:
    """The kind of each such node, by its name."""
    return {
        node.name: node.kind for node in graph.in_order() if node.name not in quantizable and node.kind not in _STILL
    }


def unquantizable(graph: Graph, quantizable: Container[str]) -> list[Unquantizable]:
    """How many there are of each kind, in graph order."""
    counts = Counter(unquantizable_nodes(graph, quantizable).values())
    return [Unquantizable(kind, count) for kind, count in counts.items()]
