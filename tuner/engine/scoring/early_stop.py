"""Stop the evaluation of a trial as soon as its samples so far rule it out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from quaver.criterion import Criterion
from quaver.engine.scoring.losses import Losses, Scored
from quaver.limit import Limit
from quaver.scores import Floats, Score
from quaver.statistics import EarlyStop, score_bounds
from quaver.trial import Trial


class _Race(NamedTuple):
    """A limit, and the indices of its samples; None is all of them."""

    limit: Limit
    stop: EarlyStop
    members: NDArray[np.int64] | None


class Stopping:
    """Follows the scores of one trial, batch by batch, by every limit that has scores of samples.

    One-sided: a trial that may still win is evaluated to the end. The limits share the probability of wrongly stopping
    a trial. A limit whose scores have no known bounds stops nothing.
    """

    def __init__(self, criterion: Criterion, baseline: Scored, delta: float) -> None:
        limits = [limit for limit in Losses(criterion, baseline).limits if limit.metric in baseline.samples]
        self._counts: dict[str, int] = {}
        self._races: list[_Race] = []
        arrays = {name: samples.array for name, samples in baseline.samples.items()}
        members = criterion.slices.each() if criterion.slices is not None else {}
        for limit in limits:
            bounds = score_bounds(arrays[limit.metric], limit.higher_is_better)
            if bounds is None:
                continue
            chosen = members[limit.slice] if limit.slice else None
            scores = arrays[limit.metric] if chosen is None else arrays[limit.metric][chosen]
            allowed = limit.allowed * abs(float(scores.mean())) if limit.relative else limit.allowed
            share = delta / len(limits)
            stop = EarlyStop(scores, allowed * len(scores), share, bounds, limit.higher_is_better)
            self._races.append(_Race(limit, stop, chosen))

    def feed(self, batch: Mapping[str, Floats]) -> bool:
        """Take the scores of the next samples, by metric. Return True if the trial is ruled out."""
        ruled_out = any(
            self._feed(race, batch[race.limit.metric]) for race in self._races if race.limit.metric in batch
        )
        for name, scores in batch.items():
            self._counts[name] = self._counts.get(name, 0) + len(scores)
        return ruled_out

    def _feed(self, race: _Race, scores: Floats) -> bool:
        if race.members is not None:
            first = self._counts.get(race.limit.metric, 0)
            begin, end = np.searchsorted(race.members, [first, first + len(scores)])
            scores = scores[race.members[begin:end] - first]
        return race.stop.update(scores) if len(scores) else False


def rules_out(criterion: Criterion, baseline: Scored, scored: Scored, delta: float) -> bool:
    """Return True if the samples of a stopped trial rule it out by this criterion, which may be another than before."""
    if not baseline.samples or criterion.target_budget is not None:
        return False
    if any(len(samples) > len(baseline.samples.get(name, ())) for name, samples in scored.samples.items()):
        return False  # these are other samples than the baseline's
    stopping = Stopping(criterion, baseline, delta)
    return stopping.feed({name: samples.array for name, samples in scored.samples.items()})


@dataclass(frozen=True, slots=True)
class EarlyStopReference:
    """The reference that a trial is compared with to stop it early.

    Attributes:
        criterion: the criterion.
        baseline: the score of the fp32 model; None while that is evaluated.
        delta: maximum probability of wrongly stopping a trial that would pass; None never stops one.
    """

    criterion: Criterion
    baseline: Score | None = None
    delta: float | None = None

    @classmethod
    def of(cls, criterion: Criterion, baseline: Trial | None, delta: float | None) -> EarlyStopReference:
        """Return the reference of a run, before and after its baseline is known."""
        if baseline is None or baseline.score is None:
            return cls(criterion, None, delta)
        return cls(criterion, Score(baseline.score, baseline.metrics, baseline.samples), delta)
