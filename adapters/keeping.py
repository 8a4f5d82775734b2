"""A few calibration samples, kept for work that needs no labels."""

from __future__ import annotations

from collections.abc import Iterator

from quaver.adapters.batches import Feed, samples

# How many samples are kept, and how large they may be together.
KEPT_SAMPLES = 16
KEPT_BYTES = 64 * 2**20


def keeping(stream: Iterator[Feed], kept: list[Feed]) -> Iterator[Feed]:
    """Pass feeds on, and put copies of the first few samples into `kept`."""
    kept.clear()
    room, count = KEPT_BYTES, 0
    for feed in stream:
        if count < KEPT_SAMPLES:
            part = first(feed, KEPT_SAMPLES - count)
            size = sum(array.nbytes for array in part.values())
            if not kept or size <= room:
                kept.append({name: array.copy() for name, array in part.items()})
                room, count = room - size, count + samples(part)
        yield feed


def first(feed: Feed, count: int) -> Feed:
    """The first samples of a feed."""
    total = samples(feed)
    if total <= count:
        return feed
    return {name: array[:count] if array.ndim and array.shape[0] == total else array for name, array in feed.items()}
