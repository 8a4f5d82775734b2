"""Run the float model with additional outputs, for one pass over the calibration data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import onnxruntime as ort

from quaver.adapters.calibration.calibrator import StreamingCalibrator, Values
from quaver.adapters.data import InputSpec, count_samples
from quaver.adapters.onnxrt.build.builder import Builder
from quaver.adapters.onnxrt.load.graph import with_bodies
from quaver.adapters.onnxrt.run import session as sessions
from quaver.adapters.repairs.base import wanted_statistics
from quaver.types import Array, Feed

# A second session of a model with larger constants takes too much memory. Judgement.
MAX_CHECKED_BYTES = 2**29
Shapes = tuple[tuple[int, ...], ...]


@dataclass(slots=True)
class OutputBuffers:
    """Output buffers for inputs of certain shapes, and the session's binding to them."""

    shapes: Shapes | None = None
    buffers: list[Array] = field(default_factory=list)
    binding: ort.IOBinding | None = None


class Calibrator(StreamingCalibrator):
    """Runs the float model and returns the values of tensors.

    Outputs are written into two alternating sets of buffers: one is filled while the other is read. Allocating new
    memory for every tensor of every sample costs as much as a small model's inference.
    """

    def __init__(self, builder: Builder, inputs: Sequence[InputSpec], threads: int) -> None:
        graph = builder.graph
        ops = (op for unit in builder.units if (op := builder.rescaler.repairable_op(unit)) is not None)
        statistics = wanted_statistics(ops)
        super().__init__(inputs, builder.calibrated_tensors(), builder.rescaler.with_intermediate_tensors(statistics))
        input_names = {spec.name for spec in inputs}
        output_names = {value.name for value in graph.outputs}
        self._graph = graph
        self._input_tensors = [name for name in self.tensors if name in input_names]
        self._computed_tensors = [name for name in self.tensors if name not in input_names]
        extra = tuple(name for name in self._computed_tensors if name not in output_names)
        serialized = builder.assemble(None, extra)
        store = serialized.store.path
        self._session = sessions.create(serialized.skeleton(), sessions.options(threads), store.parent)
        self._source, self._folder, self._threads = serialized.skeleton, store.parent, threads
        self._is_large = store.stat().st_size > MAX_CHECKED_BYTES
        self.has_branches = any(node.op_type == "If" for node in with_bodies(graph.nodes))
        self._run_options = ort.RunOptions()
        self._run_options.log_severity_level = 4
        self._buffers = [OutputBuffers(), OutputBuffers()]

    def values(self, feed: Feed) -> Values:
        """Run the float model and return the values of each tensor, the model's inputs among them."""
        # Copied, because the user may reuse the memory.
        inputs = [(name, np.array(feed[name], np.float32)) for name in self._input_tensors]
        # A session that is asked for no output returns all of them.
        outputs = self._run(feed) if self._computed_tensors else []
        return [*inputs, *zip(self._computed_tensors, outputs, strict=True)]

    def check_feed(self, feed: Feed) -> None:
        self._session.run(None, feed, self._run_options)
        if count_samples(feed) == 1 and not self._is_large:
            # Measurements run single samples through models that cannot be optimized as far.
            options = sessions.options(self._threads)
            options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
            sessions.create(self._source(), options, self._folder).run(None, feed, self._run_options)

    def _run(self, feed: Feed) -> list[Array]:
        self._buffers.reverse()
        target = self._buffers[0]
        shapes = tuple(array.shape for array in feed.values())
        if target.shapes == shapes and target.binding is not None:
            try:
                for name, array in feed.items():
                    target.binding.bind_cpu_input(name, np.ascontiguousarray(array))
                self._session.run_with_iobinding(target.binding, self._run_options)
                return target.buffers
            except Exception:  # the shape may depend on the data
                target.binding = None
        outputs: list[Array] = self._session.run(self._computed_tensors, feed, self._run_options)
        if target.shapes != shapes:
            target.shapes, target.buffers, target.binding = shapes, outputs, self._session.io_binding()
            for name, buffer in zip(self._computed_tensors, outputs, strict=True):
                target.binding.bind_output(name, "cpu", 0, buffer.dtype, buffer.shape, buffer.ctypes.data)
        return outputs

    def origin_of(self, tensor: str) -> str:
        """Name the node that writes a tensor."""
        producer = self._graph.producers.get(tensor)
        return f"the output of {self._graph.nodes[producer].name!r}" if producer is not None else "an input"
