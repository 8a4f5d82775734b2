"""Which ops cost accuracy, and what sending them back brings."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from quaver.insights.data.op_rows import OpRow
from quaver.insights.data.run_reader import RunData


@dataclass(frozen=True, slots=True)
class Step:
    """The best score that any trial has with no more than so many fp32 ops.

    Attributes:
        fp32: how many ops run in fp32.
        score: what that trial scores.
        number: of the trial.
    """

    fp32: int
    score: float
    number: int


def ranking(rows: list[OpRow], most: int = 30) -> list[OpRow]:
    """The ops that disturb the output most, the worst first."""
    known = [row for row in rows if not math.isnan(row.shown_error)]
    return sorted(known, key=lambda row: (-row.shown_error, row.op.name))[:most]


def steps(data: RunData) -> list[Step]:
    """What the score gains as ops go back to fp32, from the trial with fewest of them on."""
    higher = data.criterion.first.higher_is_better
    found: list[Step] = []
    scored = [row for row in data.rows if row.trial.score is not None]
    for row in sorted(scored, key=lambda row: (row.fp32, _worst_last(row.trial.score, higher), row.trial.number)):
        score = row.trial.score
        assert score is not None
        if found and not (score > found[-1].score if higher else score < found[-1].score):
            continue
        step = Step(row.fp32, score, row.trial.number)
        if found and found[-1].fp32 == row.fp32:
            continue
        found.append(step)
    return found


def _worst_last(score: float | None, higher: bool) -> float:
    return 0.0 if score is None else -score if higher else score


def in_words(path: list[Step]) -> str:
    """The largest gain: so many ops bring back so much."""
    if len(path) < 2:
        return ""
    gains = [
        (abs(two.score - one.score) / max(two.fp32 - one.fp32, 1), one, two) for one, two in itertools.pairwise(path)
    ]
    _, one, two = max(gains, key=lambda gain: gain[0])
    ops = two.fp32 - one.fp32
    return (
        f"{ops} more op{'' if ops == 1 else 's'} in fp32 ({one.fp32} → {two.fp32}) "
        f"bring{'s' if ops == 1 else ''} the score from {one.score:.4g} to {two.score:.4g} "
        f"(trial {one.number} → {two.number})."
    )
