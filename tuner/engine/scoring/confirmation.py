"""The scores of trials on held-out data, which took no part in choosing them, as a history records them."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from quaver.criterion import Criterion
from quaver.engine.scoring.losses import Losses
from quaver.errors import SettingsError
from quaver.history.pickle_check import MalformedRecord
from quaver.history.records.fields import Fields
from quaver.history.records.trials import to_scores
from quaver.scores import Score
from quaver.types import PlainMapping

log = logging.getLogger(__name__)

# The note that holds the scores by `confirm`, by the number of the trial; 0 is the fp32 model. A run that has a
# `confirm` writes it, empty, when it begins.
CONFIRMATION_NOTE = "confirm"


@dataclass(frozen=True, slots=True)
class Confirmation:
    """The score of one trial on held-out data.

    Attributes:
        trial: the number of the trial.
        score: its score.
        baseline: the score of the fp32 model.
        loss: in the criterion's unit.
        met: True if the loss is within the criterion.
        interval: the confidence interval of the loss, where there are scores of samples.
    """

    trial: int
    score: float
    baseline: float
    loss: float
    met: bool
    interval: tuple[float, float] | None = None


def confirmations(notes: PlainMapping, criterion: Criterion) -> tuple[Confirmation, ...]:
    """Return the recorded scores, judged by a criterion without its slices, in the order the trials were tried."""
    scores = held_out_scores(notes)
    base = scores.pop(0, None)
    if base is None or not scores:
        return ()
    try:
        losses = Losses(without_slices(criterion), base)
        losses.check()
    except SettingsError:
        return ()
    results = []
    for place, (number, score) in enumerate(scores.items(), 1):
        per_limit = losses.per_limit(score)
        if per_limit:
            all_met = all(loss.met for loss in per_limit)
            within = all_met and losses.is_confident(per_limit, score, place)
            met = within or criterion.target_budget is not None  # a budget is kept on any data
            interval = losses.interval(per_limit[0], score)
            loss = losses.loss(per_limit[0])
            results.append(Confirmation(number, score.value, base.value, loss, met, interval))
    return tuple(results)


def is_required(notes: PlainMapping) -> bool:
    """Return True if a run of this history has a `confirm`: then only a confirmed trial is met."""
    return isinstance(notes.get(CONFIRMATION_NOTE), dict)


def without_slices(criterion: Criterion) -> Criterion:
    """Return the criterion for held-out data: its slices name samples of the data that trials are judged by."""
    return replace(criterion, slices=None, slice_limit=None)


def held_out_scores(notes: PlainMapping) -> dict[int, Score]:
    """Return the scores that the note holds, by number of the trial; records that cannot be read are skipped."""
    scores: dict[int, Score] = {}
    note = notes.get(CONFIRMATION_NOTE)
    for key, record in note.items() if isinstance(note, dict) else ():
        try:
            fields = Fields(record, CONFIRMATION_NOTE)
            scores[int(key)] = Score(fields.take("score", float), **to_scores(fields))
        except (MalformedRecord, AttributeError, TypeError, ValueError) as error:
            log.warning("the held-out score of trial %.20s cannot be read: %s", key, error)
    return scores
