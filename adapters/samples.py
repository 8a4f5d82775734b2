"""Calibration samples in batches of quaver's own, so that nothing depends on the batches of the user's loader.

Ranges, errors and times would differ with the batch size: a histogram takes a number of values from each run, a kernel
rounds differently for another batch, and an error is averaged over runs. So each batch is split into single samples,
where the model takes them; a few of these are kept, and calibration joins them into runs of its own size. The same
samples in the same order give the same runs, whether they came one by one, in batches or as one array.

"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from typing import Any

import numpy as np

from quaver.adapters.data import InputSpec, count_samples, feeds, has_open_batch, split
from quaver.errors import CalibrationError, SettingsError
from quaver.types import Array, Feed

# Enough samples to rank ops by their error, and little enough memory to keep them all: judgement.
MAX_PROBE_SAMPLES = 32
MAX_PROBE_BYTES = 64 * 2**20
# Samples of one calibration run. Runs of eight take 0.28 ms a sample of benchmarks/data/digits_conv8.onnx, single ones
# 0.56 ms; two runs must fit into memory.
MAX_RUN_SAMPLES = 8


class Batching(Enum):
    """The batches that a model takes.

    Attributes:
        AS_GIVEN: only the user's batches: the model fixes its batch, or its first axis does not hold samples.
        SINGLE: one at a time.
        ANY: in batches of any size, each sample with the same result as alone.
    """

    AS_GIVEN = "as given"
    SINGLE = "single"
    ANY = "any"


def split_samples(
    stream: Iterable[Feed], inputs: Sequence[InputSpec], takes_single_samples: Callable[[Feed], bool]
) -> Iterator[Feed]:
    """Yield the samples of a stream one by one, or its feeds as they are where the model does not take single samples.

    Args:
        stream: feeds of any size.
        inputs: inputs of the model.
        takes_single_samples: returns True if the model takes the samples of a feed one by one. It is asked for each
            feed that holds several, until it returns False.
    """
    can_cut = has_open_batch(inputs)
    for feed in stream:
        if can_cut and count_samples(feed) > 1:
            can_cut = takes_single_samples(feed)
        if can_cut and count_samples(feed) > 1:
            yield from split(feed, 1)
        else:
            yield feed


def keep_first_samples(stream: Iterable[Feed], probe_samples: list[Feed]) -> Iterator[Feed]:
    """Pass feeds on, and put copies of the first few samples into `probe_samples`."""
    probe_samples.clear()
    bytes_left, count = MAX_PROBE_BYTES, 0
    for feed in stream:
        size = sum(array.nbytes for array in feed.values())
        if not probe_samples or (count < MAX_PROBE_SAMPLES and size <= bytes_left):
            probe_samples.append({name: array.copy() for name, array in feed.items()})
            bytes_left, count = bytes_left - size, count + count_samples(feed)
        yield feed


def join(feeds: Sequence[Feed]) -> Feed:
    """Return single samples as one feed. Inputs without a batch axis are taken from the first."""
    if len(feeds) == 1:
        return feeds[0]
    return {
        name: np.concatenate([feed[name] for feed in feeds]) if _has_batch_axis(array) else array
        for name, array in feeds[0].items()
    }


def can_join(first: Feed, second: Feed) -> bool:
    """Return True if two single samples fit into one feed: equal shapes, and equal arrays without a batch axis."""
    return all(
        array.shape == second[name].shape
        and array.dtype == second[name].dtype
        and (_has_batch_axis(array) or np.array_equal(array, second[name]))
        for name, array in first.items()
    )


def group_samples(stream: Iterable[Feed], size: Callable[[Feed], int]) -> Iterator[list[Feed]]:
    """Yield consecutive single samples that fit together, to be joined.

    Args:
        stream: single samples.
        size: returns how many samples like this one to join.
    """
    waiting: list[Feed] = []
    for feed in stream:
        if waiting and not can_join(waiting[0], feed):
            yield waiting
            waiting = []
        waiting.append(feed)
        if len(waiting) >= size(waiting[0]):
            yield waiting
            waiting = []
    if waiting:
        yield waiting


def check_batch(inputs: Sequence[InputSpec], batch: int) -> None:
    """Raise if the batch to measure latency at contradicts the model. 1, the default, contradicts nothing."""
    first = inputs[0]
    if batch != 1 and first.shape and first.shape[0] not in (None, batch):
        raise SettingsError(
            f"`batch={batch}` contradicts the model, whose input {first} has a fixed batch of {first.shape[0]}: leave "
            "`batch` out to measure latency at that, or export the model with an open batch axis"
        )


def timing_feed(probe_samples: Sequence[Feed], inputs: Sequence[InputSpec], batch: int) -> Feed:
    """Return `batch` of the probe samples as one feed, repeated where too few fit together.

    Where the model fixes its batch, or does not take single samples, it is the first feed as the user gave it.
    """
    if batch == 1 or not has_open_batch(inputs) or count_samples(probe_samples[0]) > 1:
        return probe_samples[0]
    fitting = [feed for feed in probe_samples if can_join(probe_samples[0], feed)]
    return join([fitting[at % len(fitting)] for at in range(batch)])


def _has_batch_axis(array: Array) -> bool:
    """Return True if an array of a single sample has a batch axis."""
    return array.ndim > 0 and array.shape[0] == 1


def make_batch(data: Any, inputs: Sequence[InputSpec], size: int) -> Feed:
    """Return a feed of `size` samples, where the model leaves that open. Too few samples are repeated.

    Raises:
        SettingsError: if the model fixes another batch, unless `size` is 1, the default.
    """
    check_batch(inputs, size)
    if data is None:
        rng = np.random.default_rng(0)
        return {spec.name: _made_up(spec, size, rng) for spec in inputs}
    parts = list(feeds(data, inputs, size))
    if not parts:
        raise CalibrationError("the data to run the model on gave no samples; pass a list or an array")
    if not has_open_batch(inputs):
        return parts[0]
    batched = [spec.name for spec in inputs if parts[0][spec.name].ndim]
    joined = {name: np.concatenate([part[name] for part in parts]) for name in batched}
    count = count_samples(joined)
    rows = np.arange(size) % count
    return {name: array[rows] if len(array) == count else parts[0][name] for name, array in joined.items()} | {
        name: array for name, array in parts[0].items() if name not in joined
    }


def _made_up(spec: InputSpec, size: int, rng: np.random.Generator) -> Array:
    """Return random values for an input. Integers are 0 and 1, which every embedding table has."""
    if spec.shape is None or any(dim is None for dim in spec.shape[1:]):
        raise SettingsError(f"input {spec} leaves more than the batch open: give data to run the model on")
    shape = [size if dim is None else dim for dim in spec.shape]
    if spec.dtype.kind == "f":
        return rng.standard_normal(shape).astype(spec.dtype)
    if spec.dtype.kind in "iub":
        return rng.integers(0, 2, shape).astype(spec.dtype)
    raise SettingsError(f"input {spec} takes {spec.dtype}: give data to run the model on")
