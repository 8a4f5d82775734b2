"""The lineage of trials: which earlier trial each came from, and what was changed. The one implementation of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt

from quaver.ops import OpConfig, QuantConfig
from quaver.trial import Trial

# A trial is compared with this many before it, so that thousands of trials of thousands of ops take a second.
LOOK_BACK = 256


@dataclass(frozen=True, slots=True)
class Change:
    """An op that two configurations run differently.

    Attributes:
        op: the name of the op.
        before: its choice in the first configuration; None if that lacks the op.
        now: its choice in the second one.
    """

    op: str
    before: OpConfig | None
    now: OpConfig | None


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a trial.

    Attributes:
        parent: the number of the earlier trial that differs from it in the fewest ops, of several the latest; None for
            the first trial.
        changes: the ops in which they differ, in graph order.
    """

    parent: int | None
    changes: tuple[Change, ...]


def difference(before: QuantConfig, now: QuantConfig) -> tuple[Change, ...]:
    """Return the ops that two configurations run differently, in graph order."""
    names = dict.fromkeys(chain(before, now))
    changes = (Change(name, before.get(name), now.get(name)) for name in names)
    return tuple(change for change in changes if change.before != change.now)


def origins(trials: Iterable[Trial]) -> dict[int, Origin]:
    """Return the origin of each trial, by its number: the nearest earlier trial, as strategies record no parents."""
    ordered = sorted((trial for trial in trials if trial.number > 0), key=lambda trial: trial.number)
    if not ordered:
        return {}
    names = list(ordered[0].config)  # the ops of one model are the same in every trial
    if any(list(trial.config) != names for trial in ordered):
        names = list(dict.fromkeys(chain.from_iterable(trial.config for trial in ordered)))
    codes = _encoded(ordered, names)
    by_number = {ordered[0].number: Origin(None, ())}
    for index in range(1, len(ordered)):
        first = max(0, index - LOOK_BACK)
        parent = first + nearest(codes[first:index], codes[index])
        changed = np.flatnonzero(codes[parent] != codes[index])
        before, now = ordered[parent].config, ordered[index].config
        changes = (Change(names[at], before.get(names[at]), now.get(names[at])) for at in changed)
        by_number[ordered[index].number] = Origin(ordered[parent].number, tuple(changes))
    return by_number


def nearest(earlier: npt.NDArray[np.uint16], codes: npt.NDArray[np.uint16]) -> int:
    """Return the row that differs in the fewest ops from a configuration, of several the last.

    The command line and the page both use this rule.

    Args:
        earlier: a row of codes for each earlier trial, in the order of their numbers, at most `LOOK_BACK` of them.
        codes: the codes of the configuration; equal codes mean that an op runs in the same way.
    """
    apart = np.count_nonzero(earlier != codes, axis=1)
    return len(earlier) - 1 - int(np.argmin(apart[::-1]))


def origin_text(origin: Origin, names: int = 0) -> str:
    """Return an origin in a few words, such as "3: 2 to fp32, 1 to int8".

    Args:
        origin: the origin.
        names: up to this many ops are named instead of counted.
    """
    if origin.parent is None:
        return "the first"
    if not origin.changes:
        return f"{origin.parent}: the same"
    if len(origin.changes) <= names:
        return f"{origin.parent}: " + ", ".join(f"{change.op} to {_target(change)}" for change in origin.changes)
    counts = Counter(map(_target, origin.changes))
    return f"{origin.parent}: " + ", ".join(f"{count} to {what}" for what, count in counts.items())


def _target(change: Change) -> str:
    """Return what an op changed to: its precision if that is another, else the details that are."""
    if change.now is None:
        return "nothing"
    if change.before is None or change.before.precision != change.now.precision:
        return str(change.now.precision)
    before, now = change.before.to_dict(), change.now.to_dict()
    changed = (value for field, value in now.items() if value != before[field])
    words = (" ".join(value) or "no repairs" if isinstance(value, list) else value for value in changed)
    return " ".join(word for word in words if word) or str(change.now.precision)


def _encoded(trials: list[Trial], names: list[str]) -> npt.NDArray[np.uint16]:
    """Return a row of codes for each trial, equal where the configurations are."""
    numbers: dict[OpConfig | None, int] = {}
    by_id: dict[int, int] = {}  # trials share their choices, and hashing one is slow

    def code(choice: OpConfig | None) -> int:
        number = by_id.get(id(choice))
        if number is None:
            number = by_id[id(choice)] = numbers.setdefault(choice, len(numbers))
        return number

    rows = np.empty((len(trials), len(names)), np.uint16)
    for row, trial in zip(rows, trials, strict=True):
        same_ops = list(trial.config) == names  # nearly always, which saves looking ops up
        row[:] = [code(choice) for choice in (trial.config.values() if same_ops else map(trial.config.get, names))]
    return rows
