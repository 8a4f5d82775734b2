"""Snapshots changed at random, read in this process: nothing runs, nothing hangs, and what is wrong has a name."""

from __future__ import annotations

import io
import random
import resource
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mutation import forged, mutated, use

from quaver.errors import HistoryError
from quaver.history.contents import Content, read
from quaver.history.frames import FrameReader

DATA = Path(__file__).parents[1] / "history" / "data"
# What no reading of data may do.
_DEEDS = ("pickle.find_class", "os.", "subprocess.", "exec", "compile", "import", "open", "socket.", "ctypes.")
_watching: list[str] | None = None


def _hook(event: str, _: Any) -> None:
    if _watching is not None and event.startswith(_DEEDS):
        _watching.append(event)


@dataclass
class Told:
    """What became of them.

    Attributes:
        outcomes: how many were read, read in part, or refused.
        wrong: anything else: raw exceptions, deeds.
        slowest: seconds of the processor.
    """

    outcomes: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    slowest: float = 0.0


def read_mutated(count: int, seed: int) -> Told:
    """Mutate and read a number of snapshots: half as bytes, half as frames with right digests."""
    global _watching
    sys.addaudithook(_hook)
    rng, told = random.Random(seed), Told()
    files = [path.read_bytes() for path in sorted(DATA.glob("schema*.snapshot"))]
    frames = [list(FrameReader(io.BytesIO(data))) for data in files]
    in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (in_use + 256 * 2**20, limits[1]))
    try:
        for number in range(count):
            which = rng.randrange(len(files))
            data = mutated(rng, files[which]) if number % 2 else forged(rng, frames[which])
            stream, content, path = io.BytesIO(data), Content(), Path("mutated.snapshot")
            begin, _watching = time.process_time(), []
            try:
                read(stream, path, content)
                if content.header is not None:
                    use(content.snapshot(path))
                told.outcomes["read whole" if content.damage is None else "read in part"] += 1
            except HistoryError:
                told.outcomes["refused"] += 1
            except BaseException as error:
                told.wrong.append(f"number {number} of seed {seed}: {error!r:.200}")
            told.slowest = max(told.slowest, time.process_time() - begin)
            if _watching:
                told.wrong.append(f"number {number} of seed {seed} did {_watching[:3]}")
            _watching = None
    finally:
        _watching = None
        resource.setrlimit(resource.RLIMIT_AS, limits)
    return told
