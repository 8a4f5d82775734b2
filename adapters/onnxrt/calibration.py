"""One streaming pass over the calibration data: every range that any trial may need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnxruntime as ort

from quaver.adapters.base import Progress
from quaver.adapters.batches import Feed, InputSpec, head, open_batch, samples, split, tail
from quaver.adapters.onnxrt import session as sessions
from quaver.adapters.onnxrt.assembly import Assembler
from quaver.adapters.onnxrt.graph import Graph
from quaver.adapters.ranges import Range, TensorStatistics
from quaver.errors import CalibrationError

# All tensors of one run are held at once; batches are cut so that they take about this much.
HELD_BYTES = 128 * 2**20


class Calibrator:
    """The float model with the tensors of interest as outputs, and statistics of each."""

    def __init__(
        self, graph: Graph, assembler: Assembler, inputs: Sequence[InputSpec], tensors: Sequence[str], threads: int
    ) -> None:
        names = {spec.name for spec in inputs}
        given = {value.name for value in graph.outputs}
        self._graph, self._inputs = graph, inputs
        self._fed = [name for name in tensors if name in names]
        self._read = [name for name in tensors if name not in names]
        extra = tuple(name for name in self._read if name not in given)
        assembly = assembler.assemble(None, extra)
        store = assembly.store.path
        self._session = sessions.create(assembly.skeleton(), sessions.options(threads), store.parent)
        self._statistics = {name: TensorStatistics() for name in tensors}
        self._sample_bytes = 0.0
        self._cuttable = open_batch(inputs)

    def run(self, stream: Iterator[Feed], limit: int | None, progress: Progress) -> dict[str, dict[str, Range]]:
        """Take in all feeds; returns the range of every tensor by every method."""
        taken = 0
        for feed in stream:
            for part in self._parts(feed):
                self._add(part)
                taken += samples(part)
                progress("calibrating", taken, limit)
        if not taken:
            raise CalibrationError(
                "calib_dataloader gave no samples. A generator that was used before is empty: pass a list or a new one"
            )
        return {name: statistics.ranges() for name, statistics in self._statistics.items()}

    def _parts(self, feed: Feed) -> Iterator[Feed]:
        """Cut a batch so that its activations fit. The first sample goes alone, to see how large they are."""
        count = samples(feed)
        if self._sample_bytes == 0 and count > 1:
            self._cuttable = self._takes_one(first := head(feed, 1))
            if self._cuttable:
                yield first
                feed = tail(feed, 1)
        known = self._cuttable and self._sample_bytes
        yield from split(feed, max(1, int(HELD_BYTES / self._sample_bytes)) if known else count)

    def _takes_one(self, feed: Feed) -> bool:
        """Whether the model takes a batch of one. Some leave the axis open and have its length inside all the same."""
        if not open_batch(self._inputs):
            return False
        quiet = ort.RunOptions()
        quiet.log_severity_level = 4
        try:
            self._session.run(self._read or None, feed, quiet)
        except Exception:
            return False
        return True

    def _add(self, feed: Feed) -> None:
        size = 0
        for name in self._fed:
            self._statistics[name].add(np.asarray(feed[name], np.float32))
        try:
            # An empty list would mean all outputs.
            outputs: list[Any] = self._session.run(self._read, feed) if self._read else []
        except Exception as error:
            raise CalibrationError(f"the float model fails on a calibration batch: {error}") from error
        for name, values in zip(self._read, outputs, strict=True):
            self._statistics[name].add(values)
            size += values.nbytes
        self._check_finite()
        if self._sample_bytes == 0:
            self._sample_bytes = max(size / samples(feed), 1.0)

    def _check_finite(self) -> None:
        for name, statistics in self._statistics.items():
            if statistics.elements and not statistics.finite:
                producer = self._graph.producers.get(name)
                where = f"the output of {self._graph.nodes[producer].name!r}" if producer is not None else "an input"
                raise CalibrationError(
                    f"tensor {name!r} ({where}) holds NaN or infinity on calibration data "
                    f"(range {statistics.low} to {statistics.high}); check the data's preprocessing and the float model"
                )
