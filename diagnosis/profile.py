"""Where the time goes: ops by what they take, one model beside another, and each as a whole."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from quaver.diagnosis import tables
from quaver.diagnosis.export import as_json
from quaver.files.paths import expanded
from quaver.introspection import KernelTime, Timing

HEADS = ("op", "kernel", "count", "seconds", "share")
BESIDE = ("against kernel", "against count", "against seconds", "against / first")


@dataclass(frozen=True, slots=True)
class Latency:
    """A model end to end. Times are seconds of one inference.

    Attributes:
        p50, p90, p99: half, nine tenths, and 99 of 100 inferences take no longer.
        mean: of all.
        throughput: samples a second, one inference after the other.
        ops: what all kernels take together, in the median.
        samples: of one inference.
        threads: as asked for; 0 is the runtime's own choice.
        runs: how many inferences were measured.
    """

    p50: float
    p90: float
    p99: float
    mean: float
    throughput: float
    ops: float
    samples: int
    threads: int
    runs: int


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """What one op takes in one inference.

    Attributes:
        name: of the op; kernels that belong to no op stand for themselves.
        kernel: what the runtime executes.
        count: how many kernels.
        seconds: what they take together.
        share: as a part of what all ops take.
        against: the same op in the other model: (kernel, count, seconds); None without one, or if it has none there.
    """

    name: str
    kernel: str
    count: int
    seconds: float
    share: float
    against: tuple[str, int, float] | None = None

    @property
    def ratio(self) -> float:
        """How long the op takes in the other model, as a multiple; NaN if that is not known."""
        return self.against[2] / self.seconds if self.against is not None and self.seconds > 0 else float("nan")


@dataclass(frozen=True, slots=True)
class Profile:
    """Where the time of a model goes, and of another one beside it.

    Attributes:
        latency: the model end to end.
        rows: its ops, those that take most first.
        against: the other model end to end; None without one.
        precisions: what each op runs in in the other model, or in the model itself if there is no other.
        how: where the times of ops come from.
    """

    latency: Latency
    rows: tuple[ProfileRow, ...]
    against: Latency | None = None
    precisions: Mapping[str, str] = field(default_factory=dict)
    how: str = ""

    @property
    def table(self) -> tables.Table:
        """The rows with their headings."""
        beside = self.against is not None
        rows: list[list[Any]] = []
        for row in self.rows:
            cells: list[Any] = [row.name, row.kernel, row.count, row.seconds, row.share]
            if beside:
                cells += [*(row.against or ("", 0, float("nan"))), row.ratio]
            rows.append(cells)
        return (*HEADS, *(BESIDE if beside else ())), rows

    def to_csv(self) -> str:
        """The rows as CSV."""
        return tables.to_csv(self.table)

    def to_json(self) -> str:
        """Everything as JSON."""
        return as_json(
            {
                "latency": asdict(self.latency),
                "against": None if self.against is None else asdict(self.against),
                "precisions": dict(self.precisions),
                "how": self.how,
                "ops": [asdict(row) for row in self.rows],
            }
        )

    def save(self, path: str | Path) -> Path:
        """Write the rows as CSV, or everything as JSON, going by how the file name ends."""
        place = Path(expanded(path))
        place.write_text(self.to_csv() if place.suffix.lower() == ".csv" else self.to_json(), encoding="utf-8")
        return place


def make_profile(first: Timing, other: Timing | None = None) -> Profile:
    """A profile from what was measured."""
    ops = _by_op(first.kernels)
    beside = {} if other is None else _by_op(other.kernels)
    total = sum(seconds for _, _, seconds in ops.values())
    rows = [
        ProfileRow(name, kernel, count, seconds, seconds / total if total else 0.0, beside.get(name))
        for name, (kernel, count, seconds) in ops.items()
    ]
    # What only the other model has: conversions between precisions.
    rows += [ProfileRow(name, "", 0, 0.0, 0.0, found) for name, found in beside.items() if name not in ops]
    rows.sort(key=lambda row: (-row.seconds, -(row.against[2] if row.against else 0.0)))
    shown = other if other is not None else first
    against = None if other is None else _latency(other)
    return Profile(_latency(first), tuple(rows), against, dict(shown.precisions), first.how)


def _by_op(kernels: Iterable[KernelTime]) -> dict[str, tuple[str, int, float]]:
    """Kernels, how many, and seconds of each op."""
    grouped: dict[str, list[KernelTime]] = {}
    for kernel in kernels:
        grouped.setdefault(kernel.op or kernel.name, []).append(kernel)
    return {
        name: (
            ", ".join(dict.fromkeys(entry.kernel for entry in sorted(parts, key=lambda part: -part.seconds))),
            len(parts),
            sum(entry.seconds for entry in parts),
        )
        for name, parts in grouped.items()
    }


def _latency(timing: Timing) -> Latency:
    p50, p90, p99 = (float(value) for value in np.percentile(timing.latencies, [50, 90, 99]))
    mean = statistics.fmean(timing.latencies)
    ops = sum(kernel.seconds for kernel in timing.kernels)
    runs = len(timing.latencies)
    return Latency(p50, p90, p99, mean, timing.samples / mean, ops, timing.samples, timing.threads, runs)
