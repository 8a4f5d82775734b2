"""Profiles: the time of each op, compared with another model's, and the latency of the whole model."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from quaver.diagnosis import tables
from quaver.diagnosis.export import as_json
from quaver.files.paths import expanded
from quaver.introspection import KernelTime, Timing

HEADS = ("op", "kernel", "count", "seconds", "share")
COMPARISON_HEADS = ("against kernel", "against count", "against seconds", "against / first")


@dataclass(frozen=True, slots=True)
class Latency:
    """The latency of a whole model. Times are seconds of one inference.

    Attributes:
        p50, p90, p99: percentiles: 50, 90 and 99 of 100 inferences take no longer.
        mean: the mean of all inferences.
        throughput: samples per second, one inference after the other.
        ops: the seconds of all kernels together, in the median.
        samples: samples of one inference.
        threads: the number of threads asked for; 0 is the runtime's own choice.
        runs: the number of inferences.
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
    """The time of one op in one inference.

    Attributes:
        name: the op's name; a kernel that belongs to no op has its own row.
        kernel: the kernels that the runtime executes.
        count: the number of kernels.
        seconds: their time together.
        share: their part of the time of all ops.
        against: the same op in the other model: (kernel, count, seconds); None without such a model or op.
    """

    name: str
    kernel: str
    count: int
    seconds: float
    share: float
    against: tuple[str, int, float] | None = None

    @property
    def ratio(self) -> float:
        """The time of the op in the other model as a multiple; NaN if it is not known."""
        return self.against[2] / self.seconds if self.against is not None and self.seconds > 0 else float("nan")


@dataclass(frozen=True, slots=True)
class Profile:
    """Where the time of a model goes, compared with another model.

    Attributes:
        latency: the latency of the model.
        rows: its ops, the slowest first.
        against: the latency of the other model; None without one.
        precisions: the precision of each op in the other model, or in the model itself without another.
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
        is_comparison = self.against is not None
        rows: list[list[tables.Cell]] = []
        for row in self.rows:
            cells: list[tables.Cell] = [row.name, row.kernel, row.count, row.seconds, row.share]
            if is_comparison:
                cells += [*(row.against or ("", 0, float("nan"))), row.ratio]
            rows.append(cells)
        return (*HEADS, *(COMPARISON_HEADS if is_comparison else ())), rows

    def to_csv(self) -> str:
        """Return the rows as CSV."""
        return tables.to_csv(self.table)

    def to_json(self) -> str:
        """Return everything as JSON."""
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
        """Write the rows as CSV, or everything as JSON, depending on the file name's suffix."""
        place = Path(expanded(path))
        place.write_text(self.to_csv() if place.suffix.lower() == ".csv" else self.to_json(), encoding="utf-8")
        return place


def make_profile(first: Timing, other: Timing | None = None) -> Profile:
    """Return the profile of one model, or of one compared with another."""
    ops = _by_op(first.kernels)
    other_ops = {} if other is None else _by_op(other.kernels)
    total = sum(seconds for _, _, seconds in ops.values())
    rows = [
        ProfileRow(name, kernel, count, seconds, seconds / total if total else 0.0, other_ops.get(name))
        for name, (kernel, count, seconds) in ops.items()
    ]
    # Kernels that only the other model has: conversions between precisions.
    rows += [ProfileRow(name, "", 0, 0.0, 0.0, timed_op) for name, timed_op in other_ops.items() if name not in ops]
    rows.sort(key=lambda row: (-row.seconds, -(row.against[2] if row.against else 0.0)))
    last = other if other is not None else first
    against = None if other is None else _latency(other)
    return Profile(_latency(first), tuple(rows), against, dict(last.precisions), first.how)


def _by_op(kernels: Iterable[KernelTime]) -> dict[str, tuple[str, int, float]]:
    """Return the kernels of each op, their number, and their seconds."""
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
