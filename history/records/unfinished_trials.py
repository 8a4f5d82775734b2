"""Trials and steps that were begun and may have ended the process, which only the next run can tell.

A step is native work between trials: a measurement, the fp32 model, or the inspection of the best model. One step is in
progress at a time. It is recorded like a trial, under number 0 and with the digest of its name as the fingerprint.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping

from quaver.history.pickle_check import MalformedRecord
from quaver.history.records.fields import Fields
from quaver.types import PlainDict

# Judgement: how often a configuration that ended the process is tried again; a second crash is rarely an accident.
RETRIES = 2
# The number under which a step is recorded. The fp32 model shares it: its trial is a step until it has a score.
STEP = 0


def digest_step(name: str) -> str:
    """Return the fingerprint under which a step is recorded."""
    return hashlib.sha256(name.encode()).hexdigest()


class UnfinishedTrials:
    """The trials in progress, and how often the process ended during each configuration."""

    def __init__(self) -> None:
        self._in_progress: dict[int, str] = {}  # number of a trial -> fingerprint of its configuration
        self._crashes: Counter[str] = Counter()
        self._crashed_steps: Counter[str] = Counter()

    def begin(self, number: int, fingerprint: str) -> None:
        """Note that a trial begins."""
        if number in self._in_progress:
            self._count(number)
        self._in_progress[number] = fingerprint

    def end(self, number: int) -> None:
        """Note that a trial was recorded, or was dropped for a reason outside of it."""
        self._in_progress.pop(number, None)

    def restart(self) -> None:
        """Count every trial in progress as one that ended the previous process."""
        for number in self._in_progress:
            self._count(number)
        self._in_progress.clear()

    @property
    def crashed_steps(self) -> Mapping[str, int]:
        """How often the process ended during each step, by the step's fingerprint."""
        return self._crashed_steps

    def crashes(self, fingerprint: str) -> int:
        """Return how often the process ended while this configuration was in progress."""
        return self._crashes[fingerprint]

    def is_in_progress(self, number: int) -> bool:
        """Return True if a trial of that number was begun and has not ended."""
        return number in self._in_progress

    def _count(self, number: int) -> None:
        fingerprint = self._in_progress[number]
        self._crashes[fingerprint] += 1
        if number == STEP:
            self._crashed_steps[fingerprint] += 1


def from_begun(number: int, fingerprint: str) -> PlainDict:
    """Return the record of a trial that begins."""
    return {"kind": "begun", "number": number, "fingerprint": fingerprint}


def to_begun(record: PlainDict) -> tuple[int, str]:
    """Return number and fingerprint of a trial that began."""
    fields = Fields(record, "begun")
    number, fingerprint = fields.take("number", int), fields.take("fingerprint", str)
    fields.done()
    if not 0 <= number < 2**31 or len(fingerprint) != 64:
        raise MalformedRecord("fields 'number' and 'fingerprint' must be the number of a trial and a sha256")
    return number, fingerprint


def from_dropped(number: int) -> PlainDict:
    """Return the record of a trial that was begun and dropped."""
    return {"kind": "dropped", "number": number}


def to_dropped(record: PlainDict) -> int:
    """Return the number of a trial that was dropped."""
    fields = Fields(record, "dropped")
    number: int = fields.take("number", int)
    fields.done()
    return number
