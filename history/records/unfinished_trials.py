"""Trials and steps that were begun: whether one ended the process is known only to the run that comes after.

A step is native work between trials: a measurement, the fp32 model, or looking into the best model. One step is under
way at a time. It is recorded like a trial, under number 0 and with the digest of its name as the fingerprint.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping

from quaver.history.pickle_check import Malformed
from quaver.history.records.fields import Fields
from quaver.types import PlainDict

# How often a configuration that ended the process is asked for again.
RETRIES = 2
# The number under which a step is recorded. The fp32 model has it, too: its trial is a step until it has a score.
STEP = 0


def digest_step(name: str) -> str:
    """Return the fingerprint under which a step is recorded."""
    return hashlib.sha256(name.encode()).hexdigest()


class Begun:
    """Which trials are under way, and how often each configuration was when its process ended without a word."""

    def __init__(self) -> None:
        self._under_way: dict[int, str] = {}  # number of a trial -> fingerprint of its configuration
        self._crashes: Counter[str] = Counter()
        self._crashed_steps: Counter[str] = Counter()

    def begin(self, number: int, fingerprint: str) -> None:
        """A trial is handed out."""
        if number in self._under_way:
            self._count(number)
        self._under_way[number] = fingerprint

    def end(self, number: int) -> None:
        """A trial is recorded, or was given up for a reason that is not its own."""
        self._under_way.pop(number, None)

    def restart(self) -> None:
        """Another process goes on: what was under way then ended the one before."""
        for number in self._under_way:
            self._count(number)
        self._under_way.clear()

    @property
    def crashed_steps(self) -> Mapping[str, int]:
        """Return how often the process ended during each step, by the step's fingerprint."""
        return self._crashed_steps

    def crashes(self, fingerprint: str) -> int:
        """How often the process ended while this configuration was under way."""
        return self._crashes[fingerprint]

    def is_under_way(self, number: int) -> bool:
        """Whether a trial of that number was begun and has not ended."""
        return number in self._under_way

    def _count(self, number: int) -> None:
        fingerprint = self._under_way[number]
        self._crashes[fingerprint] += 1
        if number == STEP:
            self._crashed_steps[fingerprint] += 1


def from_begun(number: int, fingerprint: str) -> PlainDict:
    """The record of a trial that is handed out."""
    return {"kind": "begun", "number": number, "fingerprint": fingerprint}


def to_begun(record: PlainDict) -> tuple[int, str]:
    """Number and fingerprint of a trial that was handed out."""
    taken = Fields(record, "begun")
    number, fingerprint = taken.take("number", int), taken.take("fingerprint", str)
    taken.done()
    if not 0 <= number < 2**31 or len(fingerprint) != 64:
        raise Malformed("fields 'number' and 'fingerprint' must be a number of a trial and a sha256")
    return number, fingerprint


def from_dropped(number: int) -> PlainDict:
    """The record of a trial that was begun and given up."""
    return {"kind": "dropped", "number": number}


def to_dropped(record: PlainDict) -> int:
    """The number of a trial that was given up."""
    taken = Fields(record, "dropped")
    number: int = taken.take("number", int)
    taken.done()
    return number
