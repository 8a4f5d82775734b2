"""A .tflite just as it is, float or quantized: it takes and gives real numbers, whatever the file does."""

from __future__ import annotations

from typing import Any

import numpy as np

from quaver.adapters.batches import Feed
from quaver.adapters.litert.look.matching import parameters_of
from quaver.adapters.litert.read.graph import Graph
from quaver.adapters.litert.run.feeding import as_taken, float_specs
from quaver.adapters.litert.run.model import LiteRTModel
from quaver.adapters.litert.run.session import Session


class GivenModel(LiteRTModel):
    """A file of any maker. Inputs and outputs that have a scale are quantized and made real on the way."""

    def __init__(self, graph: Graph, threads: int) -> None:
        super().__init__(graph.content, float_specs(graph), threads)
        self._graph = graph
        self._scales = [parameters_of(graph, tensor) for tensor in graph.outputs]

    def _outputs(self, feed: Feed) -> list[Any]:
        session: Session = self.session
        found = session.run(as_taken(self._graph, feed))
        return [
            values if scale is None else (values.astype(np.float32) - int(scale.zero_point)) * np.float32(scale.scale)
            for values, scale in zip(found, self._scales, strict=True)
        ]
