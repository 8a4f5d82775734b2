"""A model of which every tensor can be read after a run."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quaver.adapters.batches import Feed
from quaver.adapters.litert.read.graph import Graph
from quaver.adapters.litert.run.session import Session
from quaver.quantization import QuantizationParameters, QuantizedTensor, as_float

log = logging.getLogger(__name__)


class Whole:
    """A model with all its tensors kept."""

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
        """Run. What XNNPACK refuses, such as an int8 tensor without values, is run by LiteRT's own kernels."""
        self._shapes = {}
        try:
            self._session.invoke(feed)
        except RuntimeError as error:
            if self._plain:
                raise
            self._open(plain=True)
            self._session.invoke(feed)
            log.warning("XNNPACK cannot run the model on this data (%s); LiteRT's own kernels are looked at", error)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of all tensors in the last run."""
        if not self._shapes:
            self._shapes = {
                entry["name"]: tuple(map(int, entry["shape"]))
                for entry in self._session.interpreter.get_tensor_details()
            }
        return self._shapes

    def raw(self, name: str) -> NDArray[Any]:
        """A tensor as it is."""
        array: NDArray[Any] = self._session.interpreter.get_tensor(self._places[name]["index"])
        return array

    def seen(self, name: str) -> NDArray[Any] | QuantizedTensor:
        """A tensor as float, or in integers."""
        scale, zero = self._places[name]["quantization"]
        array = self.raw(name)
        if scale == 0.0 or array.dtype.kind == "f":
            return array
        return QuantizedTensor(
            array, QuantizationParameters(np.asarray(scale, np.float32), np.asarray(zero, array.dtype))
        )

    def value(self, name: str) -> NDArray[Any]:
        """A tensor as float, dequantized where it is int8."""
        return as_float(self.seen(name))

    def outputs(self) -> list[NDArray[Any]]:
        """What the model gives, dequantized where it is int8."""
        return [self.value(self.graph.tensor_name(tensor)) for tensor in self.graph.outputs]
