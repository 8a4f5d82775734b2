"""The float model with the tensors of interest as outputs, for one pass over the calibration data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnxruntime as ort

from quaver.adapters.calibration.calibrator import StreamingCalibrator, Values
from quaver.adapters.data import InputSpec
from quaver.adapters.onnxrt.build.builder import Builder
from quaver.adapters.onnxrt.run import session as sessions
from quaver.adapters.repairs.base import wanted_statistics
from quaver.types import Array, Feed

Shapes = tuple[tuple[int, ...], ...]


@dataclass(slots=True)
class OutputBuffers:
    """Where outputs go: buffers for inputs of certain shapes, and what binds them to the session."""

    shapes: Shapes | None = None
    buffers: list[Array] = field(default_factory=list)
    binding: Any = None


class Calibrator(StreamingCalibrator):
    """Runs the float model and takes the values of tensors.

    Outputs are written into two sets of buffers in turns, one being filled while the other is read: to touch fresh
    memory for every tensor of every sample costs as much as a small model's inference.
    """

    def __init__(self, builder: Builder, inputs: Sequence[InputSpec], threads: int) -> None:
        graph = builder.graph
        ops = (op for unit in builder.units if (op := builder.rescaler.op(unit)) is not None)
        wanted = wanted_statistics(ops)
        super().__init__(inputs, builder.needed(), builder.rescaler.with_intermediate_tensors(wanted))
        names = {spec.name for spec in inputs}
        given = {value.name for value in graph.outputs}
        self._graph = graph
        self._fed = [name for name in self.tensors if name in names]
        self._read = [name for name in self.tensors if name not in names]
        extra = tuple(name for name in self._read if name not in given)
        serialized = builder.assemble(None, extra)
        store = serialized.store.path
        self._session = sessions.create(serialized.skeleton(), sessions.options(threads), store.parent)
        self._quiet = ort.RunOptions()
        self._quiet.log_severity_level = 4
        self._places = [OutputBuffers(), OutputBuffers()]

    def values(self, feed: Feed) -> Values:
        """Run the float model; the values of each tensor, the model's inputs among them."""
        given = [(name, np.array(feed[name], np.float32)) for name in self._fed]  # the user may use the memory again
        read = self._run(feed) if self._read else []  # to ask for nothing would mean all outputs
        return [*given, *zip(self._read, read, strict=True)]

    def check_feed(self, feed: Feed) -> None:
        self._session.run(None, feed, self._quiet)

    def _run(self, feed: Feed) -> list[Array]:
        self._places.reverse()
        place = self._places[0]
        shapes = tuple(array.shape for array in feed.values())
        if place.shapes == shapes and place.binding is not None:
            try:
                for name, array in feed.items():
                    place.binding.bind_cpu_input(name, np.ascontiguousarray(array))
                self._session.run_with_iobinding(place.binding, self._quiet)
                return place.buffers
            except Exception:  # a shape that depends on the data, say
                place.binding = None
        outputs: list[Array] = self._session.run(self._read, feed, self._quiet)
        if place.shapes != shapes:
            place.shapes, place.buffers, place.binding = shapes, outputs, self._session.io_binding()
            for name, buffer in zip(self._read, outputs, strict=True):
                place.binding.bind_output(name, "cpu", 0, buffer.dtype, buffer.shape, buffer.ctypes.data)
        return outputs

    def origin_of(self, tensor: str) -> str:
        """The node that makes a tensor."""
        producer = self._graph.producers.get(tensor)
        return f"the output of {self._graph.nodes[producer].name!r}" if producer is not None else "an input"
