"""One streaming pass over the calibration data: all ranges and statistics of all tensors, in bounded memory.

Statistics of one batch are taken by a second thread while the model runs the next one. Batches are those of
`rebatching`, not those of the user.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from quaver.adapters.calibration.channel_statistics import KINDS, Accumulator, Statistic, to_plain
from quaver.adapters.calibration.ranges import WAITING, WAITING_TOGETHER, TensorStatistics
from quaver.adapters.data import InputSpec, head, open_batch, samples
from quaver.adapters.samples import MAX_RUN_SAMPLES, Batching, join, joined
from quaver.errors import CalibrationError
from quaver.types import Feed, PlainDict

# All tensors of two runs are held at once; batches are made so that those of one take about this much.
HELD_BYTES = 128 * 2**20
# Ranges that two samples together and one alone show may differ by this part, which is far above rounding.
SAME_RANGE = 1e-3
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
        self._sample_bytes = self._input_bytes = 0.0
        self._batching: Batching | None = None if open_batch(inputs) else Batching.AS_GIVEN

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

    def batching(self, feed: Feed) -> Batching:
        """Tell how the model takes samples, from runs on the first sample of a feed: alone, and in batches of 2 and 3.

        Some models leave the first axis open and have its length inside all the same. For others it is an axis of
        time: what they compute of a step depends on the steps before it.
        """
        if self._batching is None:
            self._batching = self._try_batching(head(feed, 1))
        return self._batching

    def takes_one(self, feed: Feed) -> bool:
        """Tell whether the model takes the samples of a feed one by one."""
        return self.batching(feed) is not Batching.AS_GIVEN

    def run(self, stream: Iterator[Feed], limit: int | None, progress: Progress, enough: Enough = never) -> PlainDict:
        """Take in all feeds, or those until `enough`, one at least; single samples where the model takes them.

        Returns, as builtins, the `ranges` of every tensor by every method, `statistics`, and the tensors in which real
        values are `crowded_out` by what stands for infinity.
        """
        taken = 0
        with ThreadPoolExecutor(1) as worker:
            waiting: Future[None] = worker.submit(self._take, [])
            for part in self._runs(stream, enough):
                values = self._observed(part)
                waiting.result()
                self._check_finite()
                waiting = worker.submit(self._take, values, samples(part))
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
        found: PlainDict = {"ranges": {name: seen.ranges() for name, seen in self._ranges.items()}}
        if crowded := [name for name, seen in self._ranges.items() if seen.has_mask_values]:
            found["crowded_out"] = crowded
        if self._channels:
            found["statistics"] = to_plain({wanted: seen.result() for wanted, seen in self._channels.items()})
        return found

    def _runs(self, stream: Iterator[Feed], enough: Enough) -> Iterator[Feed]:
        """The feeds to run: the first sample alone, in case there is time for no more, then several at once."""
        yield from itertools.islice(stream, 1)
        yield from joined(stream, lambda feed: 1 if enough() else self._run_samples(feed))

    def _run_samples(self, feed: Feed) -> int:
        """Return how many samples like this one to run at once, so that their activations fit."""
        if samples(feed) > 1 or self.batching(feed) is not Batching.ANY:
            return 1
        larger = _bytes(feed) / self._input_bytes
        return min(MAX_RUN_SAMPLES, max(1, int(HELD_BYTES / (larger * self._sample_bytes))))

    def check_feed(self, feed: Feed) -> None:  # noqa: B027 - few have something to do
        """Raise if the model does not take a feed, also where no tensor is read behind what fails."""

    def _try_batching(self, sample: Feed) -> Batching:
        try:
            self.check_feed(sample)
            alone, self._sample_bytes = self._extremes(sample)
        except Exception:
            return Batching.AS_GIVEN
        self._input_bytes = _bytes(sample)
        try:
            self.check_feed(join([sample, sample]))
            together, _ = self._extremes(join([sample, sample]))
        except Exception:
            return Batching.SINGLE
        try:
            self.check_feed(join([sample, sample, sample]))
            self._extremes(join([sample, sample, sample]))
        except Exception:  # a length of two inside, which a batch of one is repeated to
            return Batching.AS_GIVEN
        far = SAME_RANGE * np.abs(alone).max(axis=1, initial=0.0)
        same = (np.abs(together - alone) <= far[:, None]) | ~np.isfinite(alone)  # what is no number is reported later
        return Batching.ANY if same.all() else Batching.AS_GIVEN

    def _extremes(self, feed: Feed) -> tuple[NDArray[np.float64], float]:
        """Run a feed; the smallest and largest value of each tensor, and the bytes of all."""
        values = [array for _, array in self.values(feed)]
        pairs = [(array.min(), array.max()) if array.size else (0.0, 0.0) for array in values]
        return np.array(pairs, np.float64).reshape(-1, 2), max(float(sum(array.nbytes for array in values)), 1.0)

    def _observed(self, feed: Feed) -> Values:
        try:
            return self.values(feed)
        except Exception as error:
            raise CalibrationError(f"the float model fails on a calibration batch: {error}") from error

    def _take(self, values: Values, count: int = 1) -> None:
        """Take in the values of a run of so many samples."""
        for name, array in values:
            for taker in self._takers[name]:
                if isinstance(taker, TensorStatistics):
                    taker.add(array, min(count, MAX_RUN_SAMPLES))
                else:
                    taker.add(array)

    def _check_finite(self) -> None:
        for name, seen in self._ranges.items():
            if seen.elements and not seen.finite:
                raise CalibrationError(
                    f"tensor {name!r} ({self.whose(name)}) holds NaN or infinity on calibration data "
                    f"(range {seen.low} to {seen.high}); check the data's preprocessing and the float model"
                )


def _bytes(feed: Feed) -> float:
    return max(float(sum(array.nbytes for array in feed.values())), 1.0)
