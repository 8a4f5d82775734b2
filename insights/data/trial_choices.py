"""How each trial runs each op, as a table of small numbers, which is fast to compare."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from quaver.ops import OpConfig, QuantConfig
from quaver.trial_lineage import LOOK_BACK, nearest

Codes = NDArray[np.uint16]

# Numbers of choices must fit uint16.
MAX_CHOICES = 2**16 - 1


class Change(NamedTuple):
    """An op that two trials run differently."""

    op: str
    before: OpConfig
    after: OpConfig


class TrialChoices:
    """The choices of all trials, added one by one.

    Attributes:
        ops: the names of the ops, in graph order.
        choices: the distinct choices of all trials.
        rows: for each trial, the number of the choice of each op.
    """

    def __init__(self, ops: Sequence[str]) -> None:
        self.ops = tuple(ops)
        self.choices: list[OpConfig] = []
        self.rows: list[Codes] = []
        self._table = np.empty((64, len(self.ops)), np.uint16)  # the rows in one array, which grows by doubling
        self._numbers: dict[OpConfig, int] = {}

    def add(self, config: QuantConfig) -> None:
        """Add the configuration of the next trial."""
        codes = self.code(config)
        if len(self.rows) == len(self._table):
            self._table = np.concatenate([self._table, np.empty_like(self._table)])
        self._table[len(self.rows)] = codes
        self.rows.append(codes)

    def code(self, config: QuantConfig) -> Codes:
        """Return the choices of a configuration as numbers."""
        choices, coded_picks = config.coded()
        numbers = np.array([self._number(choice) for choice in choices], np.uint16)
        indexes = (
            np.frombuffer(coded_picks, np.uint8) if isinstance(coded_picks, bytes) else np.array(coded_picks, np.intp)
        )
        return numbers[indexes]

    def _number(self, choice: OpConfig) -> int:
        if choice not in self._numbers and len(self.choices) < MAX_CHOICES:
            self._numbers[choice] = len(self.choices)
            self.choices.append(choice)
        return self._numbers.get(choice, 0)

    @property
    def quantized(self) -> NDArray[np.bool_]:
        """True for each choice with a precision below fp32."""
        return np.array([choice.quantized for choice in self.choices], np.bool_)

    def origin(self, row: int, earlier: Sequence[int]) -> int | None:
        """Return the row that a trial came from, by the rule of `quaver.trial_lineage`; None for the first trial.

        Args:
            row: the trial's own row.
            earlier: the rows of the trials with lower numbers, in the order of the numbers.
        """
        recent = earlier[-LOOK_BACK:]
        if not recent:
            return None
        in_order = recent[-1] - recent[0] == len(recent) - 1 and list(recent) == list(range(recent[0], recent[-1] + 1))
        # A slice costs nothing; rows that came out of order are copied.
        table = self._table[recent[0] : recent[-1] + 1] if in_order else self._table[list(recent)]
        return recent[nearest(table, self.rows[row])]

    def changes(self, before: Codes, after: Codes) -> list[Change]:
        """Return the ops that two configurations run differently."""
        return [
            Change(self.ops[place], self.choices[before[place]], self.choices[after[place]])
            for place in np.flatnonzero(before != after)
        ]
