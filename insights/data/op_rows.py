"""An op as a row of a table: how it runs, what it costs, and why it had to go back to fp32."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from quaver.errors import SettingsError
from quaver.insights.data.best_model import Because, OpInside
from quaver.insights.data.run_reader import RunData
from quaver.insights.data.text import duration
from quaver.ops import Op, OpConfig, QuantConfig
from quaver.rules import apply_rules
from quaver.types import PlainMapping

# An op that disturbs the output so many times more than the median one is worth naming.
CULPRIT = 10.0
# int8 must be so much faster, as a part, to count as faster.
FASTER = 0.97
_NOTHING = OpInside()


@dataclass(frozen=True, slots=True)
class OpRow:
    """What the table of ops says of one. NaN and None are what is not known.

    Attributes:
        op: the op.
        pick: how it runs in the trial that is shown.
        inside: what was seen of it.
        alone: error at the output of the model with only this op reduced, as a part of the signal.
        local: its own error, fed with float inputs.
        running: its error in the running model.
        fp32: seconds in fp32.
        reduced: seconds in int8.
        why: why it runs in fp32, or what is bad about it in int8; empty if there is nothing to say.
        causes: what diagnosis says.
    """

    op: Op
    pick: OpConfig
    inside: OpInside
    alone: float
    local: float
    running: float
    fp32: float
    quantized: float
    why: str
    causes: tuple[Because, ...]

    @property
    def slower(self) -> bool:
        """Whether int8 does not make it faster."""
        return self.quantized >= FASTER * self.fp32

    @property
    def shown_error(self) -> float:
        """The error that tells most of what is known."""
        return next((one for one in (self.alone, self.local, self.running) if not math.isnan(one)), math.nan)


def op_rows(data: RunData, number: int | None = None) -> list[OpRow]:
    """All ops of a trial, the best one if none is named, in graph order."""
    config = _config(data, number)
    if config is None:
        return []
    notes, inside = data.snapshot.notes, data.inside
    alone, local = sensitivity(data), _numbers(notes.get("probe.local_error"))
    fp32, quantized = op_seconds(data)
    known = [value for value in alone.values() if math.isfinite(value) and value > 0]
    median = statistics.median(known) if known else math.nan
    causes: dict[str, list[Because]] = {}
    for cause in inside.causes:
        causes.setdefault(cause.op, []).append(cause)
    kept = ruled(data)
    rows = []
    for op in data.ops:
        seen, name = inside.ops.get(op.name, _NOTHING), op.name
        found = tuple(causes.get(name, ()))
        times = fp32.get(name, math.nan), quantized.get(name, math.nan)
        error = local.get(name, seen.error)
        why = _why(config[name], name in kept, found, alone.get(name, math.nan) / median, times)
        rows.append(
            OpRow(op, config[name], seen, alone.get(name, math.nan), error, _relative(seen.running), *times, why, found)
        )
    return rows


def _config(data: RunData, number: int | None) -> QuantConfig | None:
    if number is not None:
        return data.config(number)
    if data.best is not None:
        return data.best.config
    return data.config(0)


def _why(
    pick: OpConfig, ruled: bool, causes: tuple[Because, ...], times_median: float, seconds: tuple[float, float]
) -> str:
    bad = [cause for cause in causes if cause.kind != "slower"]
    if pick.quantized:
        return bad[0].sentence if bad else ""
    if ruled:
        return "Your rules keep it in fp32."
    said = []
    if bad:
        said.append(bad[0].sentence)
    elif times_median >= CULPRIT:
        said.append(f"Alone in int8 it disturbs the output {times_median:,.0f} times as much as the median op.")
    if seconds[1] >= FASTER * seconds[0]:
        said.append(f"int8 is not faster: {duration(seconds[1])} instead of {duration(seconds[0])}.")
    return " ".join(said) or "No cause of its own: beside fp32 ops int8 would cost conversions."


def ruled(data: RunData) -> frozenset[str]:
    """The ops that the user's rules keep in fp32."""
    settings = data.snapshot.run.settings
    try:
        ops = apply_rules(data.ops, settings.get("op_name_dict"), settings.get("op_type_dict"))
    except (SettingsError, AttributeError):
        return frozenset()
    return frozenset(op.name for op in ops if not op.quantizable)


def sensitivity(data: RunData) -> dict[str, float]:
    """Of each op that was measured alone the error at the output of the model; the worst of several measurements."""
    noted = _numbers(data.snapshot.notes.get("probe.sensitivity"))
    found: dict[str, float] = {}
    if not noted:
        return found
    texts: dict[OpConfig, str] = {}
    for op in data.ops:
        for choice in op.quantized_choices:
            text = texts.get(choice) or texts.setdefault(choice, str(choice))
            value = noted.get(f"{op.name} {text}")
            if value is not None:
                found[op.name] = max(value, found.get(op.name, value))
    return found


def op_seconds(data: RunData) -> tuple[dict[str, float], dict[str, float]]:
    """Seconds of each op in fp32 and in int8, from what was measured for the search, else from the profile."""
    notes = data.snapshot.notes
    for model in _dicts(notes.get("probe.time_model")):
        fp32, quantized = _numbers(model.get("fp32")), _numbers(model.get("reduced"))
        if fp32 and quantized:
            return fp32, quantized
    pairs = notes.get("probe.latency")
    if isinstance(pairs, dict) and pairs:
        listed = [(name, pair) for name, pair in pairs.items() if isinstance(pair, list) and len(pair) == 2]
        return tuple(_numbers({name: pair[side] for name, pair in listed}) for side in (0, 1))  # type: ignore[return-value]
    kernels = [kernel for kernel in data.inside.kernels if kernel.name in data.places and not kernel.converts]
    best = data.config(data.inside.profile.get("trial", 0)) if kernels else None
    quantized = {one.name: one.best for one in kernels if best is not None and best[one.name].quantized}
    return {one.name: one.fp32 for one in kernels}, quantized


def _dicts(value: Any) -> Iterator[PlainMapping]:
    if isinstance(value, dict):
        yield from (one for one in value.values() if isinstance(one, dict))


def _numbers(value: Any) -> dict[str, float]:
    """A note of numbers by name, without what is none."""
    entries = value.items() if isinstance(value, dict) else ()
    return {name: float(one) for name, one in entries if isinstance(name, str) and isinstance(one, float | int)}


def _relative(decibels: float) -> float:
    """A ratio of signal to error in dB as the part that the error is."""
    if math.isnan(decibels):
        return math.nan
    return float(10.0 ** (-min(max(decibels, -300.0), 300.0) / 10)) if math.isfinite(decibels) else 0.0
