"""The nodes of a model that compute and have no int8 kernel in MXNet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container

from quaver.adapters.mxnet.read.graph import Graph
from quaver.unquantizable import Unquantizable

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
