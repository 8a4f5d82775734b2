"""What an evaluation is held against while it goes on. Plain data, so that workers have it, too."""

from __future__ import annotations

from dataclasses import dataclass

from quaver.criterion import Criterion
from quaver.scores import Score
from quaver.trial import Trial


@dataclass(frozen=True, slots=True)
class Standard:
    """The criterion, and what the fp32 model scores.

    Attributes:
        criterion: what counts as met.
        baseline: what eval_func said of the fp32 model; None while that is asked.
        delta: the chance at most that a trial is stopped which all samples would accept; None never stops one.
    """

    criterion: Criterion
    baseline: Score | None = None
    delta: float | None = None

    @classmethod
    def of(cls, criterion: Criterion, baseline: Trial | None, delta: float | None) -> Standard:
        """The standard of a run, before and after its baseline is known."""
        if baseline is None or baseline.score is None:
            return cls(criterion, None, delta)
        return cls(criterion, Score(baseline.score, baseline.metrics, baseline.samples), delta)
