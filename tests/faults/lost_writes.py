"""A disk that keeps what was synced, and of the rest whatever it likes: what a power cut can leave of a snapshot."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

from history_samples import ALL_FP32, ALL_INT8, BASELINE, NOTE, OPS, RUNS, a_failure, a_header, a_trial, start

from quaver.history import History
from quaver.ops import FLOAT, QuantConfig

SECTOR = 512


@dataclass
class Disk:
    """What was asked of the disk, in order.

    Attributes:
        steps: ("write", place, data), ("cut", size, b""), ("sync", 0, b""), ("told", number of a trial, b"").
    """

    steps: list[tuple[str, int, bytes]] = field(default_factory=list)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Note what a history does, and do it."""
        pwrite, ftruncate, fsync = os.pwrite, os.ftruncate, os.fsync

        def noting_pwrite(descriptor: int, data: bytes, at: int) -> int:
            self.steps.append(("write", at, bytes(data)))
            return pwrite(descriptor, data, at)

        def noting_ftruncate(descriptor: int, size: int) -> None:
            self.steps.append(("cut", size, b""))
            ftruncate(descriptor, size)

        def noting_fsync(descriptor: int) -> None:
            fsync(descriptor)
            self.steps.append(("sync", 0, b""))

        with mock.patch.multiple(os, pwrite=noting_pwrite, ftruncate=noting_ftruncate, fsync=noting_fsync):
            yield

    def told(self, number: int) -> None:
        """A trial was recorded, as far as the run knows."""
        self.steps.append(("told", number, b""))

    def after_a_crash(self, chance: random.Random, most: int) -> Iterator[tuple[bytes, set[int]]]:
        """What may be in the file after a crash at each step, and the trials that must be there."""
        for end in range(len(self.steps) + 1):
            before = self.steps[:end]
            synced = max((at + 1 for at, step in enumerate(before) if step[0] == "sync"), default=0)
            told = {number for kind, number, _ in before if kind == "told"}
            kept = _apply(bytearray(), before[:synced])
            pieces = list(_pieces(before[synced:]))
            for chosen in _choices(pieces, chance, most):
                yield bytes(_apply(bytearray(kept), chosen)), told


def _pieces(steps: list[tuple[str, int, bytes]]) -> Iterator[tuple[str, int, bytes]]:
    """What the disk does at once: a cut, a new size, a sector of a write."""
    for kind, at, data in steps:
        if kind == "cut":
            yield kind, at, data
        elif kind == "write":
            yield "grow", at + len(data), b""
            place = at
            while place < at + len(data):
                end = min((place // SECTOR + 1) * SECTOR, at + len(data))
                yield "write", place, data[place - at : end - at]
                place = end


def _choices(
    pieces: list[tuple[str, int, bytes]], chance: random.Random, most: int
) -> Iterator[list[tuple[str, int, bytes]]]:
    """Some of the pieces, in each way or in a number of ways."""
    if 2 ** len(pieces) <= most:
        for count in range(len(pieces) + 1):
            yield from map(list, itertools.combinations(pieces, count))
        return
    yield pieces
    for _ in range(most - 1):
        share = chance.random()
        yield [piece for piece in pieces if chance.random() < share]


def _apply(content: bytearray, steps: list[tuple[str, int, bytes]]) -> bytearray:
    for kind, at, data in steps:
        if kind == "cut":
            del content[at:]
            content.extend(bytes(at - len(content)))
        elif kind == "grow":
            content.extend(bytes(max(0, at - len(content))))
        elif kind == "write":
            content.extend(bytes(max(0, at - len(content))))
            content[at : at + len(data)] = data
    return content


def a_history(path: Path, trials: int) -> Disk:
    """A history with all that can happen to one, and what it asked of the disk."""
    disk = Disk()
    configs = itertools.cycle([ALL_INT8, ALL_FP32, ALL_INT8.fallback(OPS[0].name), QuantConfig(dict(ALL_INT8))])
    with disk.recording():
        with History.create(path) as history:
            history.begin(a_header())
            start(history, RUNS[0])
            history.append(BASELINE)
            disk.told(0)
            history.note("probe", NOTE)
            for number in range(1, trials):
                _one_trial(history, disk, number, next(configs))
        with History.resume(path) as history:
            start(history, RUNS[1])
            history.begin_trial(trials, ALL_INT8)
            history.drop_trial(trials)
            history.append(a_failure(trials, QuantConfig((op.name, FLOAT) for op in OPS)))
            disk.told(trials)
    return disk


def _one_trial(history: History, disk: Disk, number: int, config: QuantConfig) -> None:
    history.begin_trial(number, config)
    if number % 3 == 0:  # asked for, left, asked for again
        history.drop_trial(number)
        history.extend_note("probe", {str(number): "x" * 10})
        history.begin_trial(number, config)
    history.append(a_trial(number, config, error="e" * (number % 5 * 400)))
    disk.told(number)
    if number % 2:
        history.measure(number, {"user": float(number)})
