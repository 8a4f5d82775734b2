"""Float values for a model whose inputs are in 8 bits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from quaver.adapters.batches import Feed, InputSpec
from quaver.adapters.litert.look.matching import parameters_of
from quaver.adapters.litert.read.graph import Graph


def float_specs(graph: Graph) -> tuple[InputSpec, ...]:
    """What a model takes, as its float model would: inputs that have a scale are float."""
    return tuple(
        spec if parameters_of(graph, tensor) is None else replace(spec, dtype=np.dtype(np.float32))
        for spec, tensor in zip(graph.input_specs(), graph.inputs, strict=True)
    )


def as_taken(graph: Graph, feed: Feed) -> Feed:
    """A feed of the float model as this one takes it."""
    taken = {}
    for spec, tensor in zip(graph.input_specs(), graph.inputs, strict=True):
        values, found = feed[spec.name], parameters_of(graph, tensor)
        if found is not None:
            steps = np.rint(values / found.scale) + int(found.zero_point)
            values = np.clip(steps, *graph.limits(tensor)).astype(spec.dtype)
        taken[spec.name] = values
    return taken
