"""One streaming pass over the calibration data: the range of every tensor, by every method, in bounded memory.

Statistics of one batch are taken by a second thread while the model runs the next one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from quaver.adapters.base import Progress
from quaver.adapters.batches import Feed, InputSpec, head, open_batch, samples, split, tail
from quaver.adapters.ranges import Range, TensorStatistics
from quaver.errors import CalibrationError

# All tensors of two runs are held at once; batches are cut so that those of one take about this much.
HELD_BYTES = 128 * 2**20
Values = list[tuple[str, NDArray[np.float32]]]


class StreamingCalibrator(ABC):
    """Statistics of named tensors, fed batch by batch."""

    def __init__(self, inputs: Sequence[InputSpec], tensors: Iterable[str]) -> None:
        self._inputs = inputs
        self._statistics = {name: TensorStatistics() for name in tensors}
        self._sample_bytes = 0.0
        self._cuttable = open_batch(inputs)

    @abstractmethod
    def values(self, feed: Feed) -> Values:
        """Run the float model; the values of each tensor, the model's inputs among them.

        They are read while the next feed runs: memory may be used again by the call after the next, not before.
        """

    @abstractmethod
    def whose(self, tensor: str) -> str:
        """Where a tensor comes from, for the user."""

    def run(self, stream: Iterator[Feed], limit: int | None, progress: Progress) -> dict[str, dict[str, Range]]:
        """Take in all feeds; returns the range of every tensor by every method."""
        taken = 0
        with ThreadPoolExecutor(1) as worker:
            waiting: Future[None] = worker.submit(self._take, [])
            for feed in stream:
                for part in self._parts(feed):
                    values = self._observed(part)
                    waiting.result()
                    self._check_finite()
                    waiting = worker.submit(self._take, values)
                    taken += samples(part)
                    progress(taken, limit)
            waiting.result()
        self._check_finite()
        if not taken:
            raise CalibrationError(
                "calib_dataloader gave no samples. A generator that was used before is empty: pass a list or a new one"
            )
        return {name: statistics.ranges() for name, statistics in self._statistics.items()}

    def _parts(self, feed: Feed) -> Iterator[Feed]:
        """Cut a batch so that its activations fit. The first sample goes alone, to see how large they are."""
        count = samples(feed)
        if self._sample_bytes == 0 and count > 1:
            self._cuttable = self._takes_one(alone := head(feed, 1))
            if self._cuttable:
                yield alone
                feed = tail(feed, 1)
        known = self._cuttable and self._sample_bytes
        yield from split(feed, max(1, int(HELD_BYTES / self._sample_bytes)) if known else count)

    def _takes_one(self, feed: Feed) -> bool:
        """Whether the model takes a batch of one. Some leave the axis open and have its length inside all the same."""
        if not open_batch(self._inputs):
            return False
        try:
            self.values(feed)
        except Exception:
            return False
        return True

    def _observed(self, feed: Feed) -> Values:
        try:
            values = self.values(feed)
        except Exception as error:
            raise CalibrationError(f"the float model fails on a calibration batch: {error}") from error
        if self._sample_bytes == 0:
            self._sample_bytes = max(sum(array.nbytes for _, array in values) / samples(feed), 1.0)
        return values

    def _take(self, values: Values) -> None:
        for name, array in values:
            self._statistics[name].add(array)

    def _check_finite(self) -> None:
        for name, statistics in self._statistics.items():
            if statistics.elements and not statistics.finite:
                raise CalibrationError(
                    f"tensor {name!r} ({self.whose(name)}) holds NaN or infinity on calibration data "
                    f"(range {statistics.low} to {statistics.high}); check the data's preprocessing and the float model"
                )
