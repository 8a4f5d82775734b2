"""A model whose tensors can all be read after a run."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np

from quaver.adapters.calibration.calibrator import StreamingCalibrator, Values
from quaver.adapters.calibration.channel_statistics import Statistic
from quaver.adapters.data import InputSpec
from quaver.adapters.litert.load.graph import Graph
from quaver.adapters.litert.run.session import Session
from quaver.affine import QuantizationParameters, QuantizedTensor, as_float
from quaver.types import Array, Feed

log = logging.getLogger(__name__)


class InspectableModel:
    """A model that keeps all its tensors."""

    def __init__(self, graph: Graph, inputs: list[str], threads: int) -> None:
        self.graph = graph
        self._inputs, self._threads = inputs, threads
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._open(plain=False)

    def _open(self, plain: bool) -> None:
        self._plain = plain
        self._session = Session(self.graph.content, self._inputs, self._threads, keep_all=True, plain=plain)
        self._places = {entry["name"]: entry for entry in self._session.interpreter.get_tensor_details()}

    def invoke(self, feed: Feed) -> None:
        """Run the model; with LiteRT's own kernels where XNNPACK refuses, such as an int8 tensor without values."""
        self._shapes = {}
        try:
            self._session.invoke(feed)
        except RuntimeError as error:
            if self._plain:
                raise
            self._open(plain=True)
            self._session.invoke(feed)
            log.warning("XNNPACK cannot run the model on this data (%s); LiteRT's own kernels run it instead", error)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of all tensors in the last run."""
        if not self._shapes:
            self._shapes = {
                entry["name"]: tuple(map(int, entry["shape"]))
                for entry in self._session.interpreter.get_tensor_details()
            }
        return self._shapes

    def raw(self, name: str) -> Array:
        """Return a tensor as it is stored."""
        array: Array = self._session.interpreter.get_tensor(self._places[name]["index"])
        return array

    def seen(self, name: str) -> Array | QuantizedTensor:
        """Return a tensor as float, or in integers."""
        scale, zero = self._places[name]["quantization"]
        array = self.raw(name)
        if scale == 0.0 or array.dtype.kind == "f":
            return array
        return QuantizedTensor(
            array, QuantizationParameters(np.asarray(scale, np.float32), np.asarray(zero, array.dtype))
        )

    def value(self, name: str) -> Array:
        """Return a tensor as float, dequantized where it is int8."""
        return as_float(self.seen(name))

    def outputs(self) -> list[Array]:
        """Return the outputs of the model, dequantized where they are int8."""
        return [self.value(self.graph.tensor_name(tensor)) for tensor in self.graph.outputs]


class Calibrator(StreamingCalibrator):
    """Runs the float model, and keeps all its tensors."""

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

    def origin_of(self, tensor: str) -> str:
        writer = self._graph.writers.get(self._tensors[tensor])
        return "an input" if writer is None else f"the output of {self._graph.names[writer]!r}"
