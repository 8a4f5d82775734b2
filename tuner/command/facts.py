"""What a history knows of a model besides its trials, in sentences for the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from quaver.api.aimed import target_of
from quaver.api.phrases import conversions, converted_phrase, fp32_phrase, latency_phrase, predicted_phrase
from quaver.command import wording
from quaver.history import Snapshot
from quaver.processors import noted_portability
from quaver.trial import Trial
from quaver.unquantizable import from_notes, in_words


def about_the_model(snapshot: Snapshot, best_hash: str = "") -> Iterator[str]:
    """Yield what was converted when the model was read, what cannot be quantized, and where the verdict holds."""
    portability = noted_portability(snapshot.notes, best_hash)
    holds = "" if portability is None else f"the best model was {portability}"
    for fact in (converted_phrase(conversions(snapshot.notes)), in_words(from_notes(snapshot.notes)), holds):
        if fact:
            yield wording.name(fact)


def about_latency(trial: Trial, snapshot: Snapshot) -> Iterator[str]:
    """What a trial takes beside the float model; of the baseline, what that takes."""
    fp32 = {} if snapshot.baseline is None else snapshot.baseline.measured
    predicted = predicted_phrase(trial.measured, target_of(snapshot.notes))
    if predicted:
        yield wording.name(predicted)
    fact = fp32_phrase(fp32) if trial.number == 0 else latency_phrase(trial.measured, fp32)
    if fact:
        yield wording.name(fact)
