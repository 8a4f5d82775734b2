"""One streaming pass over the calibration data: all ranges and statistics of all tensors, in bounded memory.

Statistics of one batch are taken by a second thread while the model runs the next one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quaver.adapters.batches import Feed, InputSpec, head, open_batch, samples, split, tail
from quaver.adapters.channels import KINDS, Accumulator, Statistic, to_plain
from quaver.adapters.ranges import WAITING, WAITING_TOGETHER, TensorStatistics
from quaver.errors import CalibrationError

# All tensors of two runs are held at once; batches are cut so that those of one take about this much.
HELD_BYTES = 128 * 2**20
Values = list[tuple[str, NDArray[np.float32]]]
# Told of samples done, and of how many there are if that is known.
Progress = Callable[[int, int | None], None]


# Asked after each part of a batch, whether that will do.
Enough = Callable[[], bool]


def never() -> bool:
    """Go on to the end of the data."""
    return False


def silent(done: int, total: int | None) -> None:
    """Progress that nobody watches."""


class StreamingCalibrator(ABC):
    """Statistics of named tensors, fed batch by batch: ranges of `tensors`, and what `statistics` ask of channels."""

    def __init__(
        self, inputs: Sequence[InputSpec], tensors: Iterable[str], statistics: Iterable[Statistic] = ()
    ) -> None:
        self._inputs = inputs
        names = list(tensors)
        waiting = min(WAITING, WAITING_TOGETHER // max(len(names), 1))
        self._ranges = {name: TensorStatistics(most_waiting=waiting) for name in names}
        self._channels = {wanted: KINDS[wanted.kind](wanted.axis) for wanted in statistics}
        self._takers: dict[str, list[TensorStatistics | Accumulator]] = {name: [self._ranges[name]] for name in names}
        for wanted, accumulator in self._channels.items():
            self._takers.setdefault(wanted.tensor, []).append(accumulator)
        self._sample_bytes = 0.0
        self._cuttable = open_batch(inputs)

    @abstractmethod
    def values(self, feed: Feed) -> Values:
        """Run the float model; the values of each of these tensors, the model's inputs among them.

        They are read while the next feed runs: memory may be used again by the call after the next, not before.
        """

    @abstractmethod
    def whose(self, tensor: str) -> str:
        """Where a tensor comes from, for the user."""

    @property
    def tensors(self) -> list[str]:
        """The tensors of which something is wanted."""
        return list(self._takers)

    def run(
        self, stream: Iterator[Feed], limit: int | None, progress: Progress, enough: Enough = never
    ) -> dict[str, Any]:
        """Take in all feeds, or those until `enough`, one at least.

        Returns, as builtins, the `ranges` of every tensor by every method, `statistics`, and the tensors in which real
        values are `crowded_out` by what stands for infinity.
        """
        taken = 0
        with ThreadPoolExecutor(1) as worker:
            waiting: Future[None] = worker.submit(self._take, [])
            for part in (part for feed in stream for part in self._parts(feed)):
                values = self._observed(part)
                waiting.result()
                self._check_finite()
                waiting = worker.submit(self._take, values)
                taken += samples(part)
                progress(taken, limit)
                if enough():
                    break
            waiting.result()
        self._check_finite()
        if not taken:
            raise CalibrationError(
                "calib_dataloader gave no samples. A generator that was used before is empty: pass a list or a new one"
            )
        found: dict[str, Any] = {"ranges": {name: seen.ranges() for name, seen in self._ranges.items()}}
        if crowded := [name for name, seen in self._ranges.items() if seen.crowded_out]:
            found["crowded_out"] = crowded
        if self._channels:
            found["statistics"] = to_plain({wanted: seen.result() for wanted, seen in self._channels.items()})
        return found

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
            for taker in self._takers[name]:
                taker.add(array)

    def _check_finite(self) -> None:
        for name, seen in self._ranges.items():
            if seen.elements and not seen.finite:
                raise CalibrationError(
                    f"tensor {name!r} ({self.whose(name)}) holds NaN or infinity on calibration data "
                    f"(range {seen.low} to {seen.high}); check the data's preprocessing and the float model"
                )
