"""Rescaling in ONNX graphs: whose input it can be, and what divides the channels.

A LayerNormalization that only rescaled ops read divides by its own constants, which costs nothing. Anything else is
divided by a Mul of its own, which the ops that are rescaled read, and nobody else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import NamedTuple

import numpy as np

from quaver.adapters.onnxrt.build.affine import Float
from quaver.adapters.onnxrt.read.graph import Graph, integer
from quaver.adapters.onnxrt.read.units import Unit


class Shared(NamedTuple):
    """A tensor whose channels can be rescaled for all ops with weights that read it.

    Attributes:
        units: these ops, in graph order.
        absorber: index of the node that can divide by its constants; None if it takes a Mul.
    """

    units: tuple[Unit, ...]
    absorber: int | None


def find_shared(graph: Graph, units: Sequence[Unit], roots: Mapping[str, str], pinned: Set[str]) -> dict[str, Shared]:
    """All tensors that can be rescaled, by name.

    One that an int8 op writes in integers is not among them: its outliers have cost the other channels their levels
    before anybody could divide it. Nor is what convolutions read, for which a Mul would cost more than it brings.
    """
    written = {unit.output for unit in units if unit.quantized_output}
    readers: dict[str, list[Unit]] = {}
    for unit in units:
        node = graph.nodes[unit.anchor]
        flat = unit.weight is not None and graph.constants[unit.weight].ndim == 2
        if flat and node.op_type in ("Gemm", "MatMul"):
            (name,) = unit.activations
            if roots.get(name, name) not in written:
                readers.setdefault(name, []).append(unit)
    return {name: Shared(tuple(found), _absorber(graph, name, found, pinned)) for name, found in readers.items()}


def _absorber(graph: Graph, name: str, readers: Sequence[Unit], pinned: Set[str]) -> int | None:
    """The LayerNormalization that makes a tensor, if these ops are all that read it."""
    index = graph.producers.get(name)
    if index is None or name in pinned or {unit.anchor for unit in readers} != set(graph.consumers.get(name, ())):
        return None
    node = graph.nodes[index]
    constants = [graph.constants.get(part) for part in node.input[1:]]
    last = integer(node, "axis", -1) in (-1, graph.ranks.get(name, 0) - 1)
    if node.op_type != "LayerNormalization" or node.domain or not last or len(node.output) > 1:
        return None
    return index if all(part is not None and part.ndim == 1 for part in constants) else None


def weight_peak(weights: Sequence[Float]) -> Float:
    """For each input channel the largest absolute weight, of weights laid out as repairs see them."""
    found = [np.abs(weight).reshape(weight.shape[0], weight.shape[1], -1).max(axis=(0, 2)) for weight in weights]
    return np.asarray(np.max(found, axis=0), np.float32)
