"""Which trial a trial came from, and what was changed: for the command line and the page alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt

from quaver.ops import OpConfig, QuantConfig
from quaver.trial import Trial

# A trial is compared with so many before it, so that thousands of trials of thousands of ops take a second.
LOOK_BACK = 256


@dataclass(frozen=True, slots=True)
class Change:
    """An op that two configurations run in different ways.

    Attributes:
        op: its name.
        before: how the first one runs it; None if it does not know the op.
        now: how the second one does.
    """

    op: str
    before: OpConfig | None
    now: OpConfig | None


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a trial came from.

    Attributes:
        parent: the number of the earlier trial that it differs from in the fewest ops, of several the latest; None
            for the first trial.
        changes: the ops in which they differ, in graph order.
    """

    parent: int | None
    changes: tuple[Change, ...]


def difference(before: QuantConfig, now: QuantConfig) -> tuple[Change, ...]:
    """The ops that two configurations run in different ways, in graph order."""
    names = dict.fromkeys(chain(before, now))
    changes = (Change(name, before.get(name), now.get(name)) for name in names)
    return tuple(change for change in changes if change.before != change.now)


def origins(trials: Iterable[Trial]) -> dict[int, Origin]:
    """Where each trial came from, by its number. Strategies record no parents: the nearest earlier trial is taken."""
    ordered = sorted((trial for trial in trials if trial.number > 0), key=lambda trial: trial.number)
    if not ordered:
        return {}
    names = list(ordered[0].config)  # those of one model are the same in every trial
    if any(list(trial.config) != names for trial in ordered):
        names = list(dict.fromkeys(chain.from_iterable(trial.config for trial in ordered)))
    codes = _encoded(ordered, names)
    found = {ordered[0].number: Origin(None, ())}
    for index in range(1, len(ordered)):
        first = max(0, index - LOOK_BACK)
        parent = first + nearest(codes[first:index], codes[index])
        changed = np.flatnonzero(codes[parent] != codes[index])
        before, now = ordered[parent].config, ordered[index].config
        changes = (Change(names[at], before.get(names[at]), now.get(names[at])) for at in changed)
        found[ordered[index].number] = Origin(ordered[parent].number, tuple(changes))
    return found


def nearest(earlier: npt.NDArray[np.uint16], codes: npt.NDArray[np.uint16]) -> int:
    """Return the row that differs in the fewest ops from a configuration, of several the last.

    This is the one rule for which trial a trial came from, for the command line and the page.

    Args:
        earlier: a row of codes for each earlier trial, in the order of their numbers, at most `LOOK_BACK` of them.
        codes: those of the configuration; equal codes mean that an op runs in the same way.
    """
    apart = np.count_nonzero(earlier != codes, axis=1)
    return len(earlier) - 1 - int(np.argmin(apart[::-1]))


def told(origin: Origin, names: int = 0) -> str:
    """An origin in a few words, such as "3: 2 to fp32, 1 to int8"; up to so many ops are named instead of counted."""
    if origin.parent is None:
        return "the first"
    if not origin.changes:
        return f"{origin.parent}: the same"
    if len(origin.changes) <= names:
        return f"{origin.parent}: " + ", ".join(f"{change.op} to {_target(change)}" for change in origin.changes)
    counts = Counter(map(_target, origin.changes))
    return f"{origin.parent}: " + ", ".join(f"{count} to {what}" for what, count in counts.items())


def _target(change: Change) -> str:
    """What an op went to: the precision if that is another, else what else is."""
    if change.now is None:
        return "nothing"
    if change.before is None or change.before.precision != change.now.precision:
        return str(change.now.precision)
    before, now = change.before.to_dict(), change.now.to_dict()
    others = (value for field, value in now.items() if value != before[field])
    words = (" ".join(value) or "no repairs" if isinstance(value, list) else value for value in others)
    return " ".join(word for word in words if word) or str(change.now.precision)


def _encoded(trials: list[Trial], names: list[str]) -> npt.NDArray[np.uint16]:
    """A row of numbers for each trial, equal where the configurations are."""
    known: dict[OpConfig | None, int] = {}
    by_id: dict[int, int] = {}  # trials share their choices, and to hash one is slow

    def code(choice: OpConfig | None) -> int:
        number = by_id.get(id(choice))
        if number is None:
            number = by_id[id(choice)] = known.setdefault(choice, len(known))
        return number

    rows = np.empty((len(trials), len(names)), np.uint16)
    for row, trial in zip(rows, trials, strict=True):
        same = list(trial.config) == names  # nearly always, and then nothing is looked up
        row[:] = [code(choice) for choice in (trial.config.values() if same else map(trial.config.get, names))]
    return rows
