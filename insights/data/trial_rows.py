"""Trials as rows of a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from quaver.formatting import verdict
from quaver.insights.data.text import last_line, listed
from quaver.insights.data.trial_choices import Change
from quaver.ops import BF16, INT8
from quaver.trial import Trial


@dataclass(frozen=True, slots=True)
class TrialRow:
    """One row of the table of trials.

    Attributes:
        trial: the trial, judged.
        quantized: the number of quantized ops.
        fp32: the number of fp32 ops.
        origin: the number of the trial that it was derived from; None for the first.
        changed: the number of ops that it runs differently.
        changes: these changes in words.
    """

    trial: Trial
    quantized: int
    fp32: int
    origin: int | None
    changed: int
    changes: str

    @property
    def bits(self) -> str:
        """The number of quantized ops, how many of them have fewer bits than int8, and the number of bf16 ops."""
        counts = self.trial.config.counts.items()
        fewer = [f"{count} {precision}" for precision, count in counts if count and precision < INT8]
        bf16 = [f"{count} bf16" for precision, count in counts if count and precision == BF16]
        return ", ".join([f"{self.quantized} ({', '.join(fewer)})" if fewer else str(self.quantized), *bf16])

    @property
    def kind(self) -> str:
        """The outcome; figures group trials by it."""
        return "stopped early" if self.trial.stopped else verdict(self.trial)

    @property
    def verdict(self) -> str:
        """The verdict in a few words."""
        return f"stopped after {self.trial.seen:,}" if self.trial.stopped else self.kind

    @property
    def latency(self) -> float | None:
        """The latency as a multiple of fp32's, if it was measured."""
        return self.trial.measured.get("latency")

    @property
    def milliseconds(self) -> float | None:
        """The latency of one inference, if it was measured."""
        return self.trial.measured.get("latency_ms")

    @property
    def error(self) -> str:
        """Why there is no score, on one line."""
        return last_line(self.trial.error)


def describe_changes(changes: Sequence[Change]) -> str:
    """Return which ops a trial moves to fp32, which back, and which it runs differently."""
    to_fp32 = [change.op for change in changes if change.before.quantized and not change.after.quantized]
    from_fp32 = [change.op for change in changes if change.after.quantized and not change.before.quantized]
    other = [change for change in changes if change.before.quantized == change.after.quantized]
    parts = []
    if to_fp32:
        parts.append(f"{len(to_fp32)} to fp32: {listed(to_fp32)}")
    if from_fp32:
        parts.append(f"{len(from_fp32)} to {_new_precision(changes)}: {listed(from_fp32)}")
    if other:
        differences = list(dict.fromkeys(_difference(change) for change in other))
        parts.append(f"{len(other)} run differently: {listed(differences)}")
    return "; ".join(parts) or "nothing"


def _new_precision(changes: Sequence[Change]) -> str:
    """Return the precision that ops were moved to."""
    return str(next(change.after.precision for change in changes if change.after.quantized))


def _difference(change: Change) -> str:
    """Return the difference between two choices of an op."""
    before, after = change.before.to_dict(), change.after.to_dict()
    return ", ".join(f"{before[key]} → {after[key]}" for key in after if before[key] != after[key])
