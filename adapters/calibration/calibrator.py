"""One streaming pass over the calibration data collects all ranges and statistics of all tensors in bounded memory.

A second thread updates the statistics of one batch while the model runs the next one. Batches are those of
`quaver.adapters.samples`, not those of the user.
"""

from __future__ import annotations

import itertools
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from quaver.adapters.calibration.channel_statistics import ACCUMULATORS, Accumulator, Statistic, to_records
from quaver.adapters.calibration.independence import RunSummary, summarize
from quaver.adapters.calibration.ranges import MAX_UNCOUNTED, MAX_UNCOUNTED_TOTAL, TensorStatistics
from quaver.adapters.data import InputSpec, count_samples, has_open_batch, split
from quaver.adapters.samples import MAX_RUN_SAMPLES, Batching, group_samples, join
from quaver.errors import CalibrationError
from quaver.types import Feed, PlainDict

log = logging.getLogger(__name__)

# Maximum bytes of the tensors of one run; two runs are in memory at once. Judgement.
MAX_RUN_BYTES = 128 * 2**20
Values = list[tuple[str, NDArray[np.float32]]]
# Called with the number of samples so far, and the total if that is known.
Progress = Callable[[int, int | None], None]
# Called after each run; True ends calibration.
IsEnough = Callable[[], bool]


def never_enough() -> bool:
    """Return False: use all of the data."""
    return False


def no_progress(done: int, total: int | None) -> None:
    """Report nothing."""


class StreamingCalibrator(ABC):
    """Collects the ranges of `tensors` and the channel `statistics` batch by batch.

    Attributes:
        has_branches: True if the data decides which ops of the model run.
    """

    has_branches = False

    def __init__(
        self, inputs: Sequence[InputSpec], tensors: Iterable[str], statistics: Iterable[Statistic] = ()
    ) -> None:
        self._inputs = inputs
        names = list(tensors)
        max_uncounted = min(MAX_UNCOUNTED, MAX_UNCOUNTED_TOTAL // max(len(names), 1))
        self._ranges = {name: TensorStatistics(max_uncounted=max_uncounted) for name in names}
        self._channels = {statistic: ACCUMULATORS[statistic.kind](statistic.axis) for statistic in statistics}
        self._collectors: dict[str, list[TensorStatistics | Accumulator]] = {
            name: [self._ranges[name]] for name in names
        }
        for statistic, accumulator in self._channels.items():
            self._collectors.setdefault(statistic.tensor, []).append(accumulator)
        self._update: Future[None] | None = None  # reads the values of the last run
        self._sample_bytes = self._input_bytes = 0.0
        self._batching: Batching | None = None if has_open_batch(inputs) else Batching.AS_GIVEN

    @abstractmethod
    def values(self, feed: Feed) -> Values:
        """Run the float model and return the values of these tensors, the model's inputs among them.

        They are read while the next feed runs: their memory may be used again by the call after the next, not before.
        """

    @abstractmethod
    def origin_of(self, tensor: str) -> str:
        """Return where a tensor comes from, for error messages."""

    @property
    def tensors(self) -> list[str]:
        """Return the tensors to collect something from."""
        return list(self._collectors)

    def batching(self, feed: Feed) -> Batching:
        """Return how the model takes samples.

        The first samples of the feed are run alone, and in batches of 2 and 3. Some models leave the first axis open
        but fix its length inside. For others it is a time axis: their output for a step depends on the steps before it.
        """
        if self._batching is None:
            self._batching = self._try_batching(feed)
        return self._batching

    def takes_single_samples(self, feed: Feed) -> bool:
        """Return True if the model takes the samples of a feed one by one.

        A model with branches is asked for each feed: another branch may need another batch.
        """
        if self.has_branches and self._batching is not Batching.AS_GIVEN:
            self._batching = None
        return self.batching(feed) is not Batching.AS_GIVEN

    def run(
        self, stream: Iterator[Feed], limit: int | None, progress: Progress, enough: IsEnough = never_enough
    ) -> PlainDict:
        """Run all feeds, or at least one and no more once `enough` returns True; in single samples where possible.

        Returns:
            Builtins: `ranges` of every tensor by every method; `statistics`; and `crowded_out`, the tensors in which
            mask values leave the real values no steps.
        """
        samples_done = 0
        with ThreadPoolExecutor(1) as worker:
            for feed, values in self._values_of_runs(stream, enough):
                self._finish_update()
                self._check_finite()
                self._update = worker.submit(self._add_values, values, count_samples(feed))
                samples_done += count_samples(feed)
                progress(samples_done, limit)
                if enough():
                    break
            self._finish_update()
        self._check_finite()
        if not samples_done:
            raise CalibrationError(
                "calib_dataloader gave no samples. A generator that was used before is empty: pass a list or a new one"
            )
        result: PlainDict = {"ranges": {name: tensor.ranges() for name, tensor in self._ranges.items()}}
        if with_mask_values := [name for name, tensor in self._ranges.items() if tensor.has_mask_values]:
            result["crowded_out"] = with_mask_values
        if self._channels:
            result["statistics"] = to_records(
                {statistic: tensor.result() for statistic, tensor in self._channels.items()}
            )
        return result

    def _feeds_to_run(self, stream: Iterator[Feed], enough: IsEnough) -> Iterator[list[Feed]]:
        """Yield the feeds to join: the first one alone, in case there is time for no more, then several at once."""
        yield from ([feed] for feed in itertools.islice(stream, 1))
        yield from group_samples(stream, lambda feed: 1 if enough() else self._run_samples(feed))

    def _values_of_runs(self, stream: Iterator[Feed], enough: IsEnough) -> Iterator[tuple[Feed, Values]]:
        """Yield each feed and its values.

        A model may take two and three samples at once, but not eight, or pick some of eight. Joined samples that fail
        run one by one, and so do all samples if those that are joined first have other values than alone.
        """
        is_verified = False
        for samples in self._feeds_to_run(stream, enough):
            if len(samples) > 1 and self._batching is Batching.ANY:
                values = self._values_if_joined(samples, is_verified)
                if values is not None:
                    is_verified = True
                    yield join(samples), values
                    continue
                self._batching = Batching.SINGLE
            for sample in samples:
                try:
                    values = self.values(sample)
                except Exception as error:
                    raise CalibrationError(f"the float model fails on a calibration batch: {error}") from error
                yield sample, values

    def _values_if_joined(self, samples: Sequence[Feed], is_verified: bool) -> Values | None:
        """Return the values of joined samples; None if the model fails, or computes others for each sample alone."""
        try:
            alone = [] if is_verified else [self._summary(sample) for sample in samples]
            values = self.values(join(samples))
        except Exception as error:
            log.debug("samples run one by one: %s", error)
            return None
        return values if is_verified or summarize(array for _, array in values).is_of(alone) else None

    def _run_samples(self, feed: Feed) -> int:
        """Return the number of samples like this one to run at once, so that their activations fit into memory."""
        if count_samples(feed) > 1 or self.batching(feed) is not Batching.ANY:
            return 1
        relative_size = _bytes(feed) / self._input_bytes
        return min(MAX_RUN_SAMPLES, max(1, int(MAX_RUN_BYTES / (relative_size * self._sample_bytes))))

    def check_feed(self, feed: Feed) -> None:  # noqa: B027 - few have something to do
        """Raise if the model cannot run a feed, even if it fails after the last tensor that is read.

        It must fail wherever the model as it is written does: optimized, some models take more.
        """

    def _try_batching(self, feed: Feed) -> Batching:
        """Run samples of a feed alone and together. The values of a batch must be those of its samples."""
        count = count_samples(feed)
        samples = list(itertools.islice(split(feed, 1), 3))
        try:
            self.check_feed(samples[0])
            alone = [self._summary(sample) for sample in samples]
        except Exception:
            return Batching.AS_GIVEN
        self._sample_bytes, self._input_bytes = max(4.0 * alone[0].sizes.sum(), 1.0), _bytes(samples[0])
        pair, three = ([(at if at < len(samples) else 0) for at in range(size)] for size in (2, 3))
        try:
            together = self._checked_summary(join([samples[at] for at in pair]))
        except Exception:  # it may still take the whole feed, with other results than those of its samples
            return Batching.AS_GIVEN if 1 < count <= MAX_RUN_SAMPLES and self._mixes(feed) else Batching.SINGLE
        try:
            all_three = self._checked_summary(join([samples[at] for at in three]))
        except Exception:  # inside, the model repeats a batch of one to a fixed length of two
            return Batching.AS_GIVEN
        is_same = together.is_of([alone[at] for at in pair]) and all_three.is_of([alone[at] for at in three])
        return Batching.ANY if is_same else Batching.AS_GIVEN

    def _mixes(self, feed: Feed) -> bool:
        """Return True if the values of a feed that the model takes are not those of its samples."""
        try:
            return not self._summary(feed).is_of([self._summary(sample) for sample in split(feed, 1)])
        except Exception:
            return False

    def _checked_summary(self, feed: Feed) -> RunSummary:
        self.check_feed(feed)
        return self._summary(feed)

    def _summary(self, feed: Feed) -> RunSummary:
        self._finish_update()  # this run may write into the memory that the update reads
        return summarize(array for _, array in self.values(feed))

    def _finish_update(self) -> None:
        """Wait until the values of the last run are added to the statistics."""
        if self._update is not None:
            self._update.result()

    def _add_values(self, values: Values, count: int = 1) -> None:
        """Add the values of a run of `count` samples to the statistics."""
        for name, array in values:
            for collector in self._collectors[name]:
                if isinstance(collector, TensorStatistics):
                    collector.add(array, min(count, MAX_RUN_SAMPLES))
                else:
                    collector.add(array)

    def _check_finite(self) -> None:
        for name, statistics in self._ranges.items():
            if statistics.elements and not statistics.finite:
                raise CalibrationError(
                    f"tensor {name!r} ({self.origin_of(name)}) holds NaN or infinity on calibration data "
                    f"(range {statistics.low} to {statistics.high}); check the data's preprocessing and the float model"
                )


def _bytes(feed: Feed) -> float:
    return max(float(sum(array.nbytes for array in feed.values())), 1.0)
