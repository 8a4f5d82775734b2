"""A trial as a row of a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from quaver.formatting import verdict
from quaver.insights.data.text import last_line, listed
from quaver.insights.data.trial_choices import Change
from quaver.ops import INT8
from quaver.trial import Trial


@dataclass(frozen=True, slots=True)
class TrialRow:
    """What the table of trials says of one.

    Attributes:
        trial: the trial, judged.
        reduced: how many ops run in less than fp32.
        fp32: how many do not.
        origin: number of the trial that it came from; None for the first.
        changed: how many ops it runs in another way.
        changes: the same in words.
    """

    trial: Trial
    quantized: int
    fp32: int
    origin: int | None
    changed: int
    changes: str

    @property
    def bits(self) -> str:
        """How many ops run in less than fp32, and how many of them in less than int8."""
        fewer = [f"{count} {one}" for one, count in self.trial.config.counts.items() if count and one < INT8]
        return f"{self.quantized} ({', '.join(fewer)})" if fewer else str(self.quantized)

    @property
    def kind(self) -> str:
        """How it ended, as figures tell trials apart."""
        return "stopped early" if self.trial.stopped else verdict(self.trial)

    @property
    def verdict(self) -> str:
        """In a word or two."""
        return f"stopped after {self.trial.seen:,}" if self.trial.stopped else self.kind

    @property
    def latency(self) -> float | None:
        """As a part of fp32's, where it was measured."""
        return self.trial.measured.get("latency")

    @property
    def milliseconds(self) -> float | None:
        """Of one inference, where it was measured."""
        return self.trial.measured.get("latency_ms")

    @property
    def error(self) -> str:
        """Why there is no score, in a line."""
        return last_line(self.trial.error)


def in_words(changes: Sequence[Change]) -> str:
    """What a trial changes: which ops went back to fp32, which came from there, and which are run in another way."""
    back = [change.op for change in changes if change.before.quantized and not change.after.quantized]
    forth = [change.op for change in changes if change.after.quantized and not change.before.quantized]
    other = [change for change in changes if change.before.quantized == change.after.quantized]
    parts = []
    if back:
        parts.append(f"{len(back)} to fp32: {listed(back)}")
    if forth:
        parts.append(f"{len(forth)} to {changes_to(changes)}: {listed(forth)}")
    if other:
        ways = list(dict.fromkeys(_way(change) for change in other))
        parts.append(f"{len(other)} in another way: {listed(ways)}")
    return "; ".join(parts) or "nothing"


def changes_to(changes: Sequence[Change]) -> str:
    """The precision that ops were brought to."""
    return str(next(change.after.precision for change in changes if change.after.quantized))


def _way(change: Change) -> str:
    """What is different between two ways to run an op."""
    before, after = change.before.to_dict(), change.after.to_dict()
    return ", ".join(f"{before[key]} → {after[key]}" for key in after if before[key] != after[key])
