"""The notes of a history about the best model: ops, causes and profile.

Every field is checked, because a file may come from anywhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from quaver.engine.inspection.best_model import ABOUT, CAUSES, FINE, OPS, PROFILE
from quaver.formatting import MAX_SECONDS, plural
from quaver.insights.data.text import duration
from quaver.types import PlainDict, PlainMapping
from quaver.unquantizable import Unquantizable, from_notes

if TYPE_CHECKING:
    from quaver.insights.data.run_reader import RunData

Floats = NDArray[np.float64]

# Judgement: bounds of what a note may hold, far above what quaver writes (see `quaver.engine.inspection.best_model`).
MAX_BINS = 4096
MAX_CHANNELS = 2**16
MAX_TEXT = 10_000
MAX_PARTS = 64


@dataclass(frozen=True, slots=True)
class Histogram:
    """The distribution of the values of a weight or an activation.

    Attributes:
        low, high: the borders of the bins, which have equal width.
        counts: the number of values in each bin.
        channel_low, channel_high: the ranges of channels, or of groups of `run` neighbouring ones; empty if not known.
        run: the number of channels in each range.
        rows: a histogram for each group of `row_run` channels, as 0..255 of the logarithm; empty if not known.
        row_run: the number of channels in each row.
        scale: one step in int8, the widest of several; NaN if it is not quantized.
        scales: the number of scales.
    """

    low: float
    high: float
    counts: Floats
    channel_low: Floats
    channel_high: Floats
    run: int
    rows: NDArray[np.uint8]
    row_run: int
    scale: float
    scales: int

    @property
    def centres(self) -> Floats:
        """The centres of the bins."""
        width = (self.high - self.low) / len(self.counts)
        return np.asarray(self.low + width * (np.arange(len(self.counts)) + 0.5))

    @property
    def reach(self) -> float:
        """The largest absolute value."""
        if self.channel_low.size:
            return float(max(np.abs(self.channel_low).max(), np.abs(self.channel_high).max()))
        return max(abs(self.low), abs(self.high))

    @property
    def median_reach(self) -> float:
        """The largest absolute value of the median channel."""
        if not self.channel_low.size:
            return self.reach
        return float(np.median(np.maximum(np.abs(self.channel_low), np.abs(self.channel_high))))

    @property
    def central_width(self) -> float:
        """The width of the range that holds the central 99 % of the values, to the precision of the bins."""
        total = np.cumsum(self.counts)
        if total[-1] <= 0:
            return math.nan
        low, high = np.searchsorted(total, [0.005 * total[-1], 0.995 * total[-1]])
        return float((high - low + 1) * (self.high - self.low) / len(self.counts))


@dataclass(frozen=True, slots=True)
class OpDetails:
    """The records about one op of the best model.

    Attributes:
        before: the ops whose outputs reach it.
        between: the kinds of the nodes in between.
        module: the module of the user's code, if the exporter recorded it.
        error: its own squared error over its squared signal; NaN if not known.
        running: signal over error in the running quantized model, in dB.
        low, high: the range of its output in the float model.
        limits: the smallest and the largest number that int8 can hold of its output, and one step; empty for float.
        activation, weight: the histograms; None without one.
        parts: the error of each part of the model's outputs when only this op is quantized; empty if not measured.
    """

    before: tuple[str, ...] = ()
    between: tuple[str, ...] = ()
    module: str = ""
    error: float = math.nan
    running: float = math.nan
    low: float = math.nan
    high: float = math.nan
    limits: tuple[float, ...] = ()
    activation: Histogram | None = None
    weight: Histogram | None = None
    parts: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NotedCause:
    """A cause that the diagnosis found."""

    op: str
    kind: str
    sentence: str
    advice: str
    paste: str


@dataclass(frozen=True, slots=True)
class Kernel:
    """The time of one op, or of a kernel without an op, in both models.

    A time is 0 where it does not occur.

    Attributes:
        name: the name of the op or the kernel.
        converts: True if it converts between precisions.
        fp32_kernel, best_kernel: the kernels that the runtime executes in the fp32 model and in the best one.
        fp32, best: their seconds.
    """

    name: str
    converts: bool
    fp32_kernel: str
    fp32: float
    best_kernel: str
    best: float


class Inspection:
    """Everything that was recorded about the best model.

    Attributes:
        trial: the number of the trial that was inspected; None if none was.
        samples: the number of samples.
        ops: the details of each op, by name.
        causes: the causes of errors, the worst first.
        kernels: the kernels of the profile, the slowest first.
        profile: the profile as a whole: how it was taken, threads, latencies.
    """

    def __init__(self, notes: PlainMapping, places: Mapping[str, int]) -> None:
        self._notes = _notes_of(notes)
        about, ops, causes, profile = self._notes
        header = about if isinstance(about, dict) else {}
        self.trial = number if type(number := header.get("trial")) is int else None
        self.samples = count if type(count := header.get("samples")) is int else 0
        listed = ops if isinstance(ops, dict) else {}
        self.ops = {name: _op(record, places) for name, record in listed.items() if name in places}
        self.causes = [cause for entry in _list(causes) if (cause := _cause(entry)) is not None and cause.op in places]
        self.profile: PlainDict = profile if isinstance(profile, dict) else {}
        self.kernels = [row for entry in _list(self.profile.get("rows")) if (row := _kernel(entry)) is not None]

    def is_of(self, notes: PlainMapping) -> bool:
        """Return True if it was read from these notes."""
        return all(mine is theirs for mine, theirs in zip(self._notes, _notes_of(notes), strict=True))

    def latency(self, which: str) -> dict[str, float]:
        """Return the latencies of one model in the profile, without figures that are not plausible."""
        noted = self.profile.get(which)
        entries = noted.items() if isinstance(noted, dict) else ()
        figures = {name: value for name, value in entries if isinstance(value, int | float)}
        return {name: float(value) for name, value in figures.items() if abs(value) < MAX_SECONDS}

    @property
    def latency_phrase(self) -> str:
        """The median latency of the best model, compared with fp32's."""
        fp32, best = self.latency("fp32"), self.latency("best")
        threads = plural(int(fp32.get("threads", 1)), "thread")
        times = f"median latency {duration(best.get('p50'))} vs {duration(fp32.get('p50'))} in fp32"
        batch = f"batch {int(best['samples'])}, " if best.get("samples") else ""
        return f"Trial {self.profile.get('trial')}: {times}, {batch}{threads}"


def _notes_of(notes: PlainMapping) -> tuple[object, ...]:
    return tuple(notes.get(name) for name in (ABOUT, OPS, CAUSES, PROFILE))


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _texts(value: object) -> tuple[str, ...]:
    return tuple(text for text in _list(value) if isinstance(text, str))


def _text(record: PlainMapping, name: str) -> str:
    value = record.get(name)
    return value[:MAX_TEXT] if isinstance(value, str) else ""


def _number(record: PlainMapping, name: str) -> float:
    value = record.get(name)
    return float(value) if isinstance(value, float | int) else math.nan


def _op(record: object, places: Mapping[str, int]) -> OpDetails:
    if not isinstance(record, dict):
        return OpDetails()
    limits = tuple(float(limit) for limit in _list(record.get("limits")) if isinstance(limit, float | int))
    return OpDetails(
        tuple(name for name in _texts(record.get("before")) if name in places),
        _texts(record.get("between")),
        _text(record, "module"),
        _number(record, "error"),
        _number(record, "running"),
        _number(record, "low"),
        _number(record, "high"),
        limits if len(limits) == 3 and all(map(math.isfinite, limits)) else (),
        _histogram(record.get("activation")),
        _histogram(record.get("weight")),
        _parts(record.get("parts")),
    )


def _parts(record: object) -> dict[str, float]:
    named = {name[:MAX_TEXT]: _number(record, name) for name in record} if isinstance(record, dict) else {}
    return dict(list(named.items())[:MAX_PARTS]) if not any(map(math.isnan, named.values())) else {}


def _histogram(record: object) -> Histogram | None:
    if not isinstance(record, dict):
        return None
    low, high = _number(record, "low"), _number(record, "high")
    counts = _array(record.get("counts"), "<u4", MAX_BINS)
    if not counts.size or not (math.isfinite(low) and math.isfinite(high) and low < high):
        return None
    channels = _array(record.get("channels"), "<f4", 2 * MAX_CHANNELS)
    channels = channels.reshape(2, -1) if channels.size % 2 == 0 and np.isfinite(channels).all() else np.zeros((2, 0))
    bins = FINE[1][1]
    rows = _array(record.get("rows"), "u1", MAX_BINS * bins).astype(np.uint8)
    rows = rows.reshape(-1, bins) if rows.size % bins == 0 else np.zeros((0, bins), np.uint8)
    scale = _number(record, "scale")
    return Histogram(
        low,
        high,
        counts,
        channels[0],
        channels[1],
        _count(record, "run"),
        rows,
        _count(record, "row_run"),
        scale if scale > 0 and math.isfinite(scale) else math.nan,
        _count(record, "scales"),
    )


def _count(record: PlainMapping, name: str) -> int:
    value = record.get(name)
    return value if type(value) is int and 0 < value < MAX_CHANNELS * MAX_BINS else 1


def _array(data: object, kind: str, limit: int) -> Floats:
    width = np.dtype(kind).itemsize
    if not isinstance(data, bytes) or len(data) % width or len(data) > limit * width:
        return np.zeros(0)
    return np.frombuffer(data, kind).astype(np.float64)


def _cause(entry: object) -> NotedCause | None:
    if not isinstance(entry, dict):
        return None
    return NotedCause(*(_text(entry, name) for name in ("op", "kind", "sentence", "advice", "paste")))


def _kernel(entry: object) -> Kernel | None:
    match entry:
        case [str(name), bool(converts), str(fp32_kernel), float(fp32), str(best_kernel), float(best)]:
            if math.isfinite(fp32) and math.isfinite(best):
                return Kernel(name, converts, fp32_kernel, fp32, best_kernel, best)
    return None


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """One op, or one kernel without an op.

    Attributes:
        kernel: its times.
        kind: "int8", "fp32", "conversion", or "rest" for kernels that stay float and belong to no op.
    """

    kernel: Kernel
    kind: str


def profile_rows(data: RunData) -> list[ProfileRow]:
    """Return the profile of the best model, the slowest first."""
    inspection = data.inspection
    number = inspection.profile.get("trial")
    config = data.config(number) if isinstance(number, int) else None
    rows = []
    for kernel in inspection.kernels:
        if kernel.converts:
            kind = "conversion"
        elif config is not None and kernel.name in data.places:
            kind = "int8" if config[kernel.name].quantized else "fp32"
        else:
            kind = "rest"
        rows.append(ProfileRow(kernel, kind))
    return rows


def totals(rows: list[ProfileRow], best: bool) -> dict[str, float]:
    """Return the seconds of each kind, in the best model or in fp32."""
    seconds = dict.fromkeys(("int8", "fp32", "conversion", "rest"), 0.0)
    for row in rows:
        seconds[row.kind] += row.kernel.best if best else row.kernel.fp32
    return seconds


def uncovered(data: RunData) -> list[Unquantizable]:
    """Return the kinds of nodes that no int8 kernel covers, with their share of the fp32 time."""
    return [kind for kind in from_notes(data.snapshot.notes) if kind.share is None or kind.share > 0]
