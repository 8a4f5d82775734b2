"""Ops as rows of a table: how each runs, what it costs, how sensitive it is, and why it runs in fp32."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from quaver.errors import SettingsError
from quaver.formatting import plural
from quaver.insights.data.best_model import NotedCause, OpDetails
from quaver.insights.data.run_reader import RunData
from quaver.insights.data.text import duration
from quaver.ops import Op, OpConfig, QuantConfig
from quaver.rules import apply_rules
from quaver.types import PlainMapping

# Judgement: an op is sensitive if its error at the output is this multiple of the median op's.
SENSITIVE_RATIO = 10.0
# Judgement: int8 counts as faster below this part of the fp32 time; smaller differences are noise.
FASTER_RATIO = 0.97
# Judgement: ops in the ranking; a figure of more is not read.
MAX_RANKED = 30
_NOTHING = OpDetails()


@dataclass(frozen=True, slots=True)
class OpRow:
    """One row of the table of ops. Unknown values are NaN.

    Attributes:
        op: the op.
        choice: how it runs in the trial that is shown.
        details: what was recorded about it in the best model.
        sensitivity: squared error over squared signal at the output of the model with only this op quantized.
        local_error: its own error, from float inputs.
        running_error: its error in the running model.
        fp32_seconds: its time in fp32.
        int8_seconds: its time in int8.
        reason: why it runs in fp32, or what is bad about it in int8; empty if there is nothing to say.
        causes: the causes that the diagnosis found.
    """

    op: Op
    choice: OpConfig
    details: OpDetails
    sensitivity: float
    local_error: float
    running_error: float
    fp32_seconds: float
    int8_seconds: float
    reason: str
    causes: tuple[NotedCause, ...]

    @property
    def is_not_faster(self) -> bool:
        """True if int8 does not make it faster."""
        return self.int8_seconds >= FASTER_RATIO * self.fp32_seconds

    @property
    def known_error(self) -> float:
        """The sensitivity, else its own error, else its error in the running model."""
        errors = (self.sensitivity, self.local_error, self.running_error)
        return next((error for error in errors if not math.isnan(error)), math.nan)


def op_rows(data: RunData, number: int | None = None) -> list[OpRow]:
    """Return the ops of a trial (by default the best one) in graph order."""
    config = _config(data, number)
    if config is None:
        return []
    notes, inspection = data.snapshot.notes, data.inspection
    sensitivities, local = measured_sensitivity(data), _numbers(notes.get("probe.local_error"))
    fp32, quantized = op_seconds(data)
    values = [value for value in sensitivities.values() if math.isfinite(value) and value > 0]
    median = statistics.median(values) if values else math.nan
    causes: dict[str, list[NotedCause]] = {}
    for cause in inspection.causes:
        causes.setdefault(cause.op, []).append(cause)
    fp32_by_rules, hosts = ops_kept_by_rules(data), fusion_hosts(data, fp32)
    rows = []
    for op in data.ops:
        details, choice = inspection.ops.get(op.name, _NOTHING), config[op.name]
        op_causes, sensitivity = tuple(causes.get(op.name, ())), sensitivities.get(op.name, math.nan)
        times = fp32.get(op.name, math.nan), quantized.get(op.name, math.nan)
        is_kept_by_rules = op.name in fp32_by_rules
        rows.append(
            OpRow(
                op=op,
                choice=choice,
                details=details,
                sensitivity=sensitivity,
                local_error=local.get(op.name, details.error),
                running_error=_relative(details.running),
                fp32_seconds=times[0],
                int8_seconds=times[1],
                reason=_reason(
                    choice, is_kept_by_rules, op_causes, sensitivity / median, times, hosts.get(op.name, "")
                ),
                causes=op_causes,
            )
        )
    return rows


def fusion_hosts(data: RunData, seconds: Mapping[str, float]) -> dict[str, str]:
    """Return the op whose kernel contains each op without a time of its own: the nearest one before it that has one."""
    hosts: dict[str, str] = {}
    for op in data.ops:
        before = data.inspection.ops.get(op.name, _NOTHING).before
        if seconds.get(op.name) == 0 and before:
            hosts[op.name] = hosts.get(before[0], before[0])
    return hosts


def _config(data: RunData, number: int | None) -> QuantConfig | None:
    if number is not None:
        return data.config(number)
    if data.best is not None:
        return data.best.config
    return data.config(0)


def _reason(
    choice: OpConfig,
    is_kept_by_rules: bool,
    causes: tuple[NotedCause, ...],
    times_median: float,
    seconds: tuple[float, float],
    host: str,
) -> str:
    """Return why an op runs in fp32, or what is bad about it in int8."""
    accuracy_causes = [cause for cause in causes if cause.kind != "slower"]
    if choice.quantized:
        return accuracy_causes[0].sentence if accuracy_causes else ""
    if is_kept_by_rules:
        return "Your rules keep it in fp32."
    sentences = []
    if accuracy_causes:
        sentences.append(accuracy_causes[0].sentence)
    elif times_median >= SENSITIVE_RATIO:
        sentences.append(f"Its sensitivity is {times_median:,.0f} times that of the median op.")
    if seconds[0] == 0 < seconds[1]:
        kernel = f"the kernel of {host}" if host else "another op's kernel"
        sentences.append(f"In fp32 it is fused into {kernel}; in int8 it takes {duration(seconds[1])}.")
    elif seconds[1] >= FASTER_RATIO * seconds[0]:
        sentences.append(f"int8 is not faster: {duration(seconds[1])} vs {duration(seconds[0])} in fp32.")
    return " ".join(sentences) or "No cause of its own: next to fp32 ops, int8 would need conversions."


def ops_kept_by_rules(data: RunData) -> frozenset[str]:
    """Return the ops that the user's rules keep in fp32."""
    settings = data.snapshot.run.settings
    try:
        ops = apply_rules(data.ops, settings.get("op_name_dict"), settings.get("op_type_dict"), float_types=None)
    except (SettingsError, AttributeError):
        return frozenset()
    return frozenset(op.name for op in ops if not op.quantizable)


def measured_sensitivity(data: RunData) -> dict[str, float]:
    """Return the sensitivity of each op that was measured alone; the worst of several measurements."""
    notes = data.snapshot.notes
    noted = _numbers(notes.get("probe.sensitivity.parts")) or _numbers(notes.get("probe.sensitivity"))  # older versions
    worst: dict[str, float] = {}
    if not noted:
        return worst
    texts: dict[OpConfig, str] = {}
    for op in data.ops:
        for choice in op.quantized_choices:
            text = texts.get(choice) or texts.setdefault(choice, str(choice))
            value = noted.get(f"{op.name} {text}")
            if value is not None:
                worst[op.name] = max(value, worst.get(op.name, value))
    return worst


def op_seconds(data: RunData) -> tuple[dict[str, float], dict[str, float]]:
    """Return the seconds of each op in fp32 and in int8, from the measurements of the search or else the profile."""
    notes = data.snapshot.notes
    for model in _dicts(notes.get("probe.time_model")):
        fp32, quantized = _numbers(model.get("fp32")), _numbers(model.get("reduced"))
        if fp32 and quantized:
            return fp32, quantized
    pairs = notes.get("probe.latency")
    if isinstance(pairs, dict) and pairs:
        listed = [(name, pair) for name, pair in pairs.items() if isinstance(pair, list) and len(pair) == 2]
        return tuple(_numbers({name: pair[side] for name, pair in listed}) for side in (0, 1))  # type: ignore[return-value]
    kernels = [kernel for kernel in data.inspection.kernels if kernel.name in data.places and not kernel.converts]
    best = data.config(data.inspection.profile.get("trial", 0)) if kernels else None
    quantized = {kernel.name: kernel.best for kernel in kernels if best is not None and best[kernel.name].quantized}
    return {kernel.name: kernel.fp32 for kernel in kernels}, quantized


def _dicts(value: object) -> Iterator[PlainMapping]:
    if isinstance(value, dict):
        yield from (entry for entry in value.values() if isinstance(entry, dict))


def _numbers(value: object) -> dict[str, float]:
    """Return a note of numbers by name, without other values."""
    entries = value.items() if isinstance(value, dict) else ()
    return {
        name: float(number) for name, number in entries if isinstance(name, str) and isinstance(number, float | int)
    }


def _relative(decibels: float) -> float:
    """Return squared error over squared signal from a ratio of signal to error in dB."""
    if math.isnan(decibels):
        return math.nan
    return float(10.0 ** (-min(max(decibels, -300.0), 300.0) / 10)) if math.isfinite(decibels) else 0.0


@dataclass(frozen=True, slots=True)
class BestScore:
    """The best score of any trial with at most this number of fp32 ops.

    Attributes:
        fp32: the number of ops in fp32.
        score: the score of the trial.
        number: the number of the trial.
    """

    fp32: int
    score: float
    number: int


def most_sensitive(rows: list[OpRow], limit: int = MAX_RANKED) -> list[OpRow]:
    """Return the ops with the largest errors, the worst first."""
    measured = [row for row in rows if not math.isnan(row.known_error)]
    return sorted(measured, key=lambda row: (-row.known_error, row.op.name))[:limit]


def best_scores(data: RunData) -> list[BestScore]:
    """Return the best score for each number of fp32 ops at which it improves."""
    higher = data.criterion.first.higher_is_better
    scored = [
        BestScore(row.fp32, row.trial.score, row.trial.number) for row in data.rows if row.trial.score is not None
    ]
    best: list[BestScore] = []
    for step in sorted(scored, key=lambda step: (step.fp32, -step.score if higher else step.score, step.number)):
        if not best or (
            step.fp32 > best[-1].fp32 and (step.score > best[-1].score if higher else step.score < best[-1].score)
        ):
            best.append(step)
    return best


def largest_gain(steps: list[BestScore]) -> str:
    """Return a sentence about the step with the largest gain per op; empty if there are fewer than two steps."""
    if len(steps) < 2:
        return ""
    before, after = max(
        itertools.pairwise(steps),
        key=lambda pair: abs(pair[1].score - pair[0].score) / max(pair[1].fp32 - pair[0].fp32, 1),
    )
    ops = after.fp32 - before.fp32
    return (
        f"{plural(ops, 'more op')} in fp32 ({before.fp32} → {after.fp32}) "
        f"change{'s' if ops == 1 else ''} the score from {before.score:.4g} to {after.score:.4g} "
        f"(trial {before.number} → {after.number})."
    )
