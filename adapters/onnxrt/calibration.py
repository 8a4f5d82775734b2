"""The float model with the tensors of interest as outputs, for one pass over the calibration data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from quaver.adapters.batches import Feed, InputSpec
from quaver.adapters.onnxrt import session as sessions
from quaver.adapters.onnxrt.assembler import Assembler
from quaver.adapters.onnxrt.graph import Graph
from quaver.adapters.streaming import StreamingCalibrator

Shapes = tuple[tuple[int, ...], ...]


class Calibrator(StreamingCalibrator):
    """Runs the float model and takes the values of tensors.

    Outputs are written into the same buffers run after run: to touch fresh memory for every tensor of every sample
    costs as much as a small model's inference.
    """

    def __init__(
        self, graph: Graph, assembler: Assembler, inputs: Sequence[InputSpec], tensors: Sequence[str], threads: int
    ) -> None:
        super().__init__(inputs, tensors)
        names = {spec.name for spec in inputs}
        given = {value.name for value in graph.outputs}
        self._graph = graph
        self._fed = [name for name in tensors if name in names]
        self._read = [name for name in tensors if name not in names]
        extra = tuple(name for name in self._read if name not in given)
        assembly = assembler.assemble(None, extra)
        store = assembly.store.path
        self._session = sessions.create(assembly.skeleton(), sessions.options(threads), store.parent)
        self._quiet = ort.RunOptions()
        self._quiet.log_severity_level = 4
        self._shapes: Shapes | None = None  # of the inputs that the buffers were made for
        self._buffers: list[NDArray[Any]] = []
        self._binding: Any = None

    def values(self, feed: Feed) -> Iterator[tuple[str, NDArray[np.float32]]]:
        """Run the float model; the values of each tensor, the model's inputs among them."""
        for name in self._fed:
            yield name, np.asarray(feed[name], np.float32)
        if self._read:  # an empty list would mean all outputs
            yield from zip(self._read, self._run(feed), strict=True)

    def _run(self, feed: Feed) -> list[NDArray[Any]]:
        shapes = tuple(array.shape for array in feed.values())
        if self._shapes == shapes and self._binding is not None:
            try:
                for name, array in feed.items():
                    self._binding.bind_cpu_input(name, np.ascontiguousarray(array))
                self._session.run_with_iobinding(self._binding, self._quiet)
                return self._buffers
            except Exception:  # a shape that depends on the data, say
                self._binding = None
        outputs: list[NDArray[Any]] = self._session.run(self._read, feed, self._quiet)
        if self._shapes != shapes:
            self._shapes, self._buffers, self._binding = shapes, outputs, self._session.io_binding()
            for name, buffer in zip(self._read, outputs, strict=True):
                self._binding.bind_output(name, "cpu", 0, buffer.dtype, buffer.shape, buffer.ctypes.data)
        return outputs

    def whose(self, tensor: str) -> str:
        """The node that makes a tensor."""
        producer = self._graph.producers.get(tensor)
        return f"the output of {self._graph.nodes[producer].name!r}" if producer is not None else "an input"
