"""Ranges of all tensors from one pass over the calibration data."""

from __future__ import annotations

from collections.abc import Sequence

from quaver.adapters.batches import Feed, InputSpec
from quaver.adapters.channels import Statistic
from quaver.adapters.litert.read.graph import Graph
from quaver.adapters.litert.run.session import Session
from quaver.adapters.streaming import StreamingCalibrator, Values


class Calibrator(StreamingCalibrator):
    """The float model with all tensors kept."""

    def __init__(
        self,
        graph: Graph,
        inputs: Sequence[InputSpec],
        tensors: Sequence[int],
        statistics: Sequence[Statistic],
        threads: int,
    ) -> None:
        super().__init__(inputs, [graph.tensor_name(tensor) for tensor in tensors], statistics)
        self._graph = graph
        self._tensors = {graph.tensor_name(tensor): tensor for tensor in tensors}
        self._session = Session(graph.content, [spec.name for spec in inputs], threads, keep_all=True)

    def values(self, feed: Feed) -> Values:
        self._session.invoke(feed)
        return [(name, self._session.interpreter.get_tensor(tensor)) for name, tensor in self._tensors.items()]

    def whose(self, tensor: str) -> str:
        writer = self._graph.writers.get(self._tensors[tensor])
        return "an input" if writer is None else f"the output of {self._graph.names[writer]!r}"
