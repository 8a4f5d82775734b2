"""Which ops are sensitive to quantization, and what the score gains when ops return to fp32."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from quaver.formatting import plural
from quaver.insights.data.op_rows import OpRow
from quaver.insights.data.run_reader import RunData

# Judgement: ops in the ranking; a figure of more is not read.
MAX_RANKED = 30


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
