"""Calibration samples in batches of quaver's own, so that nothing depends on the batches of the user's loader.

Ranges, errors and times would differ with the batching: a histogram takes so many values of each run, a kernel rounds
otherwise for another batch, and an error is averaged over runs. So each batch is cut into single samples, where the
model takes them; a few of these are kept, and calibration joins them into runs of its own size. The same samples in
the same order give the same runs, whether they came one by one, in batches or as one array.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from typing import Any

import numpy as np

from quaver.adapters.data import InputSpec, feeds, open_batch, samples, split
from quaver.errors import CalibrationError, SettingsError
from quaver.types import Array, Feed

# How many samples are kept, and how large they may be together.
KEPT_SAMPLES = 32
KEPT_BYTES = 64 * 2**20
# The most samples of one calibration run: so many that a small net is not slowed down by calls (0.56 ms a sample of
# benchmarks/data/digits_conv8.onnx alone, 0.28 ms by eights), and so few that two runs fit into memory.
MAX_RUN_SAMPLES = 8


class Batching(Enum):
    """How a model takes samples.

    Attributes:
        AS_GIVEN: in the batches of the user only: the model fixes its batch, or its first axis is not one of samples.
        SINGLE: one at a time.
        ANY: in batches of any size, each sample with the same result as alone.
    """

    AS_GIVEN = "as given"
    SINGLE = "single"
    ANY = "any"


def cut(stream: Iterable[Feed], inputs: Sequence[InputSpec], takes_one: Callable[[Feed], bool]) -> Iterator[Feed]:
    """Yield the samples of a stream one by one, or its feeds as they are where the model does not take single samples.

    Args:
        stream: feeds of any size.
        inputs: what the model takes.
        takes_one: tells whether the model takes single samples. It is asked once, with the first feed that holds
            several.
    """
    can_cut: bool | None = None if open_batch(inputs) else False
    for feed in stream:
        if can_cut is None and samples(feed) > 1:
            can_cut = takes_one(feed)
        if can_cut and samples(feed) > 1:
            yield from split(feed, 1)
        else:
            yield feed


def keep(stream: Iterable[Feed], kept: list[Feed]) -> Iterator[Feed]:
    """Pass feeds on, and put copies of the first few samples into `kept`."""
    kept.clear()
    room, count = KEPT_BYTES, 0
    for feed in stream:
        size = sum(array.nbytes for array in feed.values())
        if not kept or (count < KEPT_SAMPLES and size <= room):
            kept.append({name: array.copy() for name, array in feed.items()})
            room, count = room - size, count + samples(feed)
        yield feed


def join(feeds: Sequence[Feed]) -> Feed:
    """Return single samples as one feed. Inputs without a batch axis are taken from the first."""
    if len(feeds) == 1:
        return feeds[0]
    return {
        name: np.concatenate([feed[name] for feed in feeds]) if _has_batch_axis(array) else array
        for name, array in feeds[0].items()
    }


def can_join(one: Feed, other: Feed) -> bool:
    """Tell whether two single samples fit into one feed: their shapes agree, and what has no batch axis is equal."""
    return all(
        array.shape == other[name].shape
        and array.dtype == other[name].dtype
        and (_has_batch_axis(array) or np.array_equal(array, other[name]))
        for name, array in one.items()
    )


def joined(stream: Iterable[Feed], size: Callable[[Feed], int]) -> Iterator[Feed]:
    """Join single samples that follow each other and fit together; `size` says how many like the first to join."""
    waiting: list[Feed] = []
    for feed in stream:
        if waiting and not can_join(waiting[0], feed):
            yield join(waiting)
            waiting = []
        waiting.append(feed)
        if len(waiting) >= size(waiting[0]):
            yield join(waiting)
            waiting = []
    if waiting:
        yield join(waiting)


def check_batch(inputs: Sequence[InputSpec], batch: int) -> None:
    """Refuse a `batch` to measure latency at that contradicts the model. 1, the default, contradicts nothing."""
    first = inputs[0]
    if batch != 1 and first.shape and first.shape[0] not in (None, batch):
        raise SettingsError(
            f"`batch={batch}` contradicts the model, whose input {first} has a fixed batch of {first.shape[0]}: leave "
            "`batch` out to measure latency at that, or export the model with an open batch axis"
        )


def timing_feed(kept: Sequence[Feed], inputs: Sequence[InputSpec], batch: int) -> Feed:
    """Return `batch` of the samples kept as one feed, repeated where there are too few that fit together.

    Where the model fixes its batch, or does not take single samples, it is the first feed as it was given.
    """
    if batch == 1 or not open_batch(inputs) or samples(kept[0]) > 1:
        return kept[0]
    like = [feed for feed in kept if can_join(kept[0], feed)]
    return join([like[at % len(like)] for at in range(batch)])


def _has_batch_axis(array: Array) -> bool:
    """Tell whether an array of a single sample has a batch axis."""
    return array.ndim > 0 and array.shape[0] == 1


def one_batch(data: Any, inputs: Sequence[InputSpec], size: int) -> Feed:
    """A feed of `size` samples, where the model leaves that open. Too few samples are repeated.

    Raises `SettingsError` if the model fixes another batch, unless `size` is 1, the default.
    """
    check_batch(inputs, size)
    if data is None:
        rng = np.random.default_rng(0)
        return {spec.name: _made_up(spec, size, rng) for spec in inputs}
    parts = list(feeds(data, inputs, size))
    if not parts:
        raise CalibrationError("the data to run the model on gave no samples; pass a list or an array")
    if not open_batch(inputs):
        return parts[0]
    batched = [spec.name for spec in inputs if parts[0][spec.name].ndim]
    joined = {name: np.concatenate([part[name] for part in parts]) for name in batched}
    count = samples(joined)
    rows = np.arange(size) % count
    return {name: array[rows] if len(array) == count else parts[0][name] for name, array in joined.items()} | {
        name: array for name, array in parts[0].items() if name not in joined
    }


def _made_up(spec: InputSpec, size: int, rng: np.random.Generator) -> Array:
    """Random values for an input. Integers are 0 and 1, which every table of embeddings has."""
    if spec.shape is None or any(dim is None for dim in spec.shape[1:]):
        raise SettingsError(f"input {spec} leaves more than the batch open: give data to run the model on")
    shape = [size if dim is None else dim for dim in spec.shape]
    if spec.dtype.kind == "f":
        return rng.standard_normal(shape).astype(spec.dtype)
    if spec.dtype.kind in "iub":
        return rng.integers(0, 2, shape).astype(spec.dtype)
    raise SettingsError(f"input {spec} takes {spec.dtype}: give data to run the model on")
