"""What trials score on data that took no part in choosing them, as a history notes it."""

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

# The note that keeps what `confirm` said, by the number of the trial; 0 is the fp32 model. It is there, and empty, as
# soon as a run that has a `confirm` begins.
CONFIRMATION_NOTE = "confirm"


@dataclass(frozen=True, slots=True)
class Confirmation:
    """What one trial scores on the data that took no part in choosing it.

    Attributes:
        trial: its number.
        score: what it scores there.
        baseline: what the fp32 model scores there.
        loss: how much worse that is, in the criterion's unit.
        met: whether that is within the criterion.
        interval: between what the loss on such data lies, where there are scores of samples.
    """

    trial: int
    score: float
    baseline: float
    loss: float
    met: bool
    interval: tuple[float, float] | None = None


def confirmations(notes: PlainMapping, criterion: Criterion) -> tuple[Confirmation, ...]:
    """What was noted of trials, judged by a criterion, in the order they were tried; slices are of other samples."""
    scores = noted(notes)
    base = scores.pop(0, None)
    if base is None or not scores:
        return ()
    try:
        losses = Losses(there(criterion), base)
        losses.check()
    except SettingsError:
        return ()
    found = []
    for place, (number, score) in enumerate(scores.items(), 1):
        lost = losses.of(score)
        if lost:
            within = all(one.met for one in lost) and losses.is_sure(lost, score, place)
            met = within or criterion.target_budget is not None  # a budget is kept on any data
            interval = losses.interval(lost[0], score)
            found.append(Confirmation(number, score.value, base.value, losses.loss(lost[0]), met, interval))
    return tuple(found)


def is_required(notes: PlainMapping) -> bool:
    """Return whether a run of this history has a `confirm`: only a confirmed trial is met then."""
    return isinstance(notes.get(CONFIRMATION_NOTE), dict)


def there(criterion: Criterion) -> Criterion:
    """What counts as met on the other data: slices are of the samples that trials are judged by."""
    return replace(criterion, slices=None, slice_limit=None)


def noted(notes: PlainMapping) -> dict[int, Score]:
    """What the note holds, as far as it can be understood: a file may come from anywhere."""
    found: dict[int, Score] = {}
    given = notes.get(CONFIRMATION_NOTE)
    for key, record in given.items() if isinstance(given, dict) else ():
        try:
            taken = Fields(record, CONFIRMATION_NOTE)
            score = Score(taken.take("score", float), **to_scores(taken))
            found[int(key)] = score
        except (MalformedRecord, AttributeError, TypeError, ValueError) as error:
            log.warning("what was confirmed of trial %.20s cannot be read: %s", key, error)
    return found
