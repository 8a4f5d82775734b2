"""What a history notes of the inside of the best model. Every field is checked: a file may come from anywhere."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quaver.engine.inspection.best_model import ABOUT, CAUSES, FINE, OPS, PROFILE
from quaver.formatting import MAX_SECONDS
from quaver.types import PlainDict, PlainMapping

Floats = NDArray[np.float64]

_BINS = 4096
_CHANNELS = 2**16
_TEXT = 10_000


@dataclass(frozen=True, slots=True)
class Histogram:
    """How the values of a weight or an activation lie.

    Attributes:
        low, high: borders of the bins, which are of one width.
        counts: of each bin.
        channel_low, channel_high: ranges of channels, or of runs of `run` neighbouring ones; empty if not known.
        run: how many channels one range is of.
        rows: a histogram for each channel or run of `row_run` ones, as 0..255 of the logarithm; empty if not known.
        row_run: how many channels one row is of.
        scale: one step in int8, the widest of several; NaN if it is not quantized.
        scales: how many scales there are.
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
        """Of the bins."""
        width = (self.high - self.low) / len(self.counts)
        return np.asarray(self.low + width * (np.arange(len(self.counts)) + 0.5))

    @property
    def reach(self) -> float:
        """The largest size of a value."""
        if self.channel_low.size:
            return float(max(np.abs(self.channel_low).max(), np.abs(self.channel_high).max()))
        return max(abs(self.low), abs(self.high))

    @property
    def median_reach(self) -> float:
        """The largest size of a value in the median channel."""
        if not self.channel_low.size:
            return self.reach
        return float(np.median(np.maximum(np.abs(self.channel_low), np.abs(self.channel_high))))

    @property
    def usual(self) -> float:
        """How wide a range holds 99 of 100 values, as far as the bins tell."""
        total = np.cumsum(self.counts)
        if total[-1] <= 0:
            return math.nan
        low, high = np.searchsorted(total, [0.005 * total[-1], 0.995 * total[-1]])
        return float((high - low + 1) * (self.high - self.low) / len(self.counts))


@dataclass(frozen=True, slots=True)
class OpInside:
    """What was seen of one op.

    Attributes:
        before: the ops whose outputs reach it.
        between: kinds of the nodes between.
        module: of the user's code, where the exporter left it.
        error: its own, as a part of what it computes; NaN if not known.
        running: signal over error in the running quantized model, in dB.
        low, high: of its output in the float model.
        limits: the smallest and the largest number that int8 holds of its output, and one step; empty if it is float.
        activation, weight: histograms; None if there is none.
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


@dataclass(frozen=True, slots=True)
class Because:
    """Why an op is bad, as diagnosis says it."""

    op: str
    kind: str
    sentence: str
    advice: str
    paste: str


@dataclass(frozen=True, slots=True)
class Kernel:
    """What one op, or one kernel of no op, takes in the fp32 model and in the best one; 0 where it is not there.

    Attributes:
        name: of the op, or of the kernel.
        converts: whether it is what converts between precisions.
        fp32_kernel, best_kernel: what the runtime executes.
        fp32, best: seconds.
    """

    name: str
    converts: bool
    fp32_kernel: str
    fp32: float
    best_kernel: str
    best: float


class Inside:
    """All that was noted.

    Attributes:
        trial: number of the trial that was looked at; None if none was.
        samples: on how many samples.
        ops: by name.
        causes: the worst first.
        kernels: of the profile, those that take most first.
        profile: what is said of the profile as a whole: how it was taken, threads, latencies.
    """

    def __init__(self, notes: PlainMapping, places: Mapping[str, int]) -> None:
        self._seen = _notes(notes)
        about, ops, causes, profile = self._seen
        known = about if isinstance(about, dict) else {}
        self.trial = number if type(number := known.get("trial")) is int else None
        self.samples = count if type(count := known.get("samples")) is int else 0
        listed = ops if isinstance(ops, dict) else {}
        self.ops = {name: _op(record, places) for name, record in listed.items() if name in places}
        self.causes = [one for entry in _list(causes) if (one := _because(entry)) is not None and one.op in places]
        self.profile: PlainDict = profile if isinstance(profile, dict) else {}
        self.kernels = [row for entry in _list(self.profile.get("rows")) if (row := _kernel(entry)) is not None]

    def is_of(self, notes: PlainMapping) -> bool:
        """Whether these are the notes that it was read from."""
        return all(one is other for one, other in zip(self._seen, _notes(notes), strict=True))

    def latency(self, which: str) -> dict[str, float]:
        """Return what the profile says of one model as a whole; what is no plausible figure is left out."""
        found = self.profile.get(which)
        entries = found.items() if isinstance(found, dict) else ()
        figures = {name: value for name, value in entries if isinstance(value, int | float)}
        return {name: float(value) for name, value in figures.items() if abs(value) < MAX_SECONDS}


def _notes(notes: PlainMapping) -> tuple[Any, ...]:
    return tuple(notes.get(name) for name in (ABOUT, OPS, CAUSES, PROFILE))


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(one for one in _list(value) if isinstance(one, str))


def _text(record: PlainMapping, name: str) -> str:
    value = record.get(name)
    return value[:_TEXT] if isinstance(value, str) else ""


def _number(record: PlainMapping, name: str) -> float:
    value = record.get(name)
    return float(value) if isinstance(value, float | int) else math.nan


def _op(record: Any, places: Mapping[str, int]) -> OpInside:
    if not isinstance(record, dict):
        return OpInside()
    limits = tuple(float(one) for one in _list(record.get("limits")) if isinstance(one, float | int))
    return OpInside(
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
    )


def _histogram(record: Any) -> Histogram | None:
    if not isinstance(record, dict):
        return None
    low, high = _number(record, "low"), _number(record, "high")
    counts = _array(record.get("counts"), "<u4", _BINS)
    if not counts.size or not (math.isfinite(low) and math.isfinite(high) and low < high):
        return None
    channels = _array(record.get("channels"), "<f4", 2 * _CHANNELS)
    channels = channels.reshape(2, -1) if channels.size % 2 == 0 and np.isfinite(channels).all() else np.zeros((2, 0))
    bins = FINE[1][1]
    rows = _array(record.get("rows"), "u1", _BINS * bins).astype(np.uint8)
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
    return value if type(value) is int and 0 < value < _CHANNELS * _BINS else 1


def _array(data: Any, kind: str, most: int) -> Floats:
    width = np.dtype(kind).itemsize
    if not isinstance(data, bytes) or len(data) % width or len(data) > most * width:
        return np.zeros(0)
    return np.frombuffer(data, kind).astype(np.float64)


def _because(entry: Any) -> Because | None:
    if not isinstance(entry, dict):
        return None
    return Because(*(_text(entry, name) for name in ("op", "kind", "sentence", "advice", "paste")))


def _kernel(entry: Any) -> Kernel | None:
    match entry:
        case [str(name), bool(converts), str(fp32_kernel), float(fp32), str(best_kernel), float(best)]:
            if math.isfinite(fp32) and math.isfinite(best):
                return Kernel(name, converts, fp32_kernel, fp32, best_kernel, best)
    return None
