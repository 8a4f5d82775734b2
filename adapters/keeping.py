"""A few calibration samples, kept for work that needs no labels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from quaver.adapters.batches import Feed, InputSpec, head, open_batch, samples

# How many samples are kept, and how large they may be together.
KEPT_SAMPLES = 32
KEPT_BYTES = 64 * 2**20


def keeping(stream: Iterator[Feed], inputs: Sequence[InputSpec], kept: list[Feed]) -> Iterator[Feed]:
    """Pass feeds on, and put copies of the first few samples into `kept`."""
    kept.clear()
    room, count = KEPT_BYTES, 0
    for feed in stream:
        if count < KEPT_SAMPLES:
            part = first(feed, inputs, KEPT_SAMPLES - count)
            size = sum(array.nbytes for array in part.values())
            if not kept or size <= room:
                kept.append({name: array.copy() for name, array in part.items()})
                room, count = room - size, count + samples(part)
        yield feed


def first(feed: Feed, inputs: Sequence[InputSpec], count: int) -> Feed:
    """The first samples of a feed, or all of it where the model fixes its batch."""
    return head(feed, count) if open_batch(inputs) else feed
