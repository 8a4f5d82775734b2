"""Trials to plain builtins and back, and the figures that are measured of them later.

What is about to be written is checked by the code that reads, so nothing can be written that would be refused later.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from quaver.history.choices import Spread, from_choice, from_indexes, to_choices, to_indexes, utf8
from quaver.history.fields import Fields, figures, from_number
from quaver.history.opcodes import Malformed
from quaver.history.scores import from_scores, to_scores
from quaver.ops import OpConfig, QuantConfig
from quaver.trial import Trial, TrialState

# Characters of a traceback that are kept.
MAX_ERROR = 100_000
_STATES = frozenset(str(state) for state in TrialState)


def from_trial(trial: Trial, places: Mapping[str, int]) -> dict[str, Any]:
    """The record of a trial. Its config becomes the distinct choices and one index an op, in the order of `places`.

    Loss and verdict are not in it: they follow from the scores and a criterion, which may change.
    """
    if len(trial.config) != len(places) or any(name not in trial.config for name in places):
        raise Malformed("its config does not cover exactly the ops of the header")
    table: dict[OpConfig, int] = {}
    indexes = [table.setdefault(trial.config[name], len(table)) for name in places]
    return {
        "kind": "trial",
        "number": trial.number,
        "state": str(trial.state),
        "choices": [from_choice(choice) for choice in table],
        "picks": from_indexes(indexes, len(table)),
        "score": from_number(trial.score),
        "seconds": from_number(trial.seconds),
        "build_seconds": from_number(trial.build_seconds),
        "model_hash": trial.model_hash,
        "model_size": trial.model_size,
        "measured": _from_figures(trial.measured),
        "error": _shortened(trial.error),
        **_from_worker(trial),
        **from_scores(trial),
    }


def to_trial(record: dict[str, Any], places: Mapping[str, int], schema: int) -> Trial:
    """The trial in a record, its config spread over the ops of the header, each at its place. Nobody has judged it."""
    taken = Fields(record, "trial")
    choices = to_choices(taken.take("choices", list))
    picks = to_indexes(taken.take("picks", bytes), len(choices), "picks")
    if len(picks) != len(places):
        raise Malformed(f"field 'picks' is for {len(picks)} ops, and the header has {len(places)}")
    state = taken.take("state", str)
    if state not in _STATES:
        raise Malformed(f"field 'state' must be one of {', '.join(TrialState)}, not {state!r:.80}")
    trial = Trial(
        number=taken.take("number", int),
        config=QuantConfig.adopt(Spread(places, choices, picks)),
        state=TrialState(state),
        score=taken.take("score", float, type(None)),
        seconds=taken.take("seconds", float),
        build_seconds=taken.take("build_seconds", float),
        model_hash=taken.take("model_hash", str),
        model_size=taken.take("model_size", int),
        measured=figures(taken.take("measured", dict), "measured"),
        error=taken.take("error", str, type(None)),
        **_to_worker(taken),
        **to_scores(taken),
    )
    if schema == 1 and "loss" in taken:  # a file begun so may go on in the newest schema
        taken.take("loss", float, type(None))
        taken.take("met", bool)
    taken.done()
    _check(trial)
    return trial


def _from_worker(trial: Trial) -> dict[str, Any]:
    """Who evaluated it and when; nothing if the run did so itself."""
    return {"worker": trial.worker, "started": from_number(trial.started)} if trial.worker else {}


def _to_worker(taken: Fields) -> dict[str, Any]:
    if "worker" not in taken:
        return {}
    return {"worker": utf8(taken.take("worker", str), "worker"), "started": taken.take("started", float)}


def from_measured(number: int, measured: Mapping[str, float]) -> dict[str, Any]:
    """The record of figures that were taken of a trial after it was recorded."""
    return {"kind": "measured", "number": number, "figures": _from_figures(measured)}


def to_measured(record: dict[str, Any]) -> tuple[int, dict[str, float]]:
    """The number of a trial, and figures to add to it."""
    taken = Fields(record, "measured")
    number = taken.take("number", int)
    found = figures(taken.take("figures", dict), "figures")
    taken.done()
    return number, found


def _shortened(error: str | None) -> str | None:
    """The beginning and the end of a traceback; what was raised may carry a whole array as text."""
    if type(error) is not str or len(error) <= MAX_ERROR:
        return error
    return f"{error[: MAX_ERROR // 2]}\n[{len(error) - MAX_ERROR:,} characters left out]\n{error[-MAX_ERROR // 2 :]}"


def _from_figures(measured: Mapping[str, float]) -> dict[str, Any]:
    return {name: from_number(value) for name, value in measured.items()}


def _check(trial: Trial) -> None:
    if not 0 <= trial.number < 2**31 or not 0 <= trial.model_size < 2**63:
        raise Malformed("fields 'number' and 'model_size' must be 0 or more, and below 2**31 and 2**63")
    if not trial.failed and not trial.unscored and trial.score is None:
        raise Malformed(f"field 'score' must be a float, because the trial is {trial.state}")
    if trial.unscored and trial.score is not None:
        raise Malformed("field 'score' must be None, because the trial was not evaluated")
    if trial.stopped and not trial.samples:
        raise Malformed("field 'samples' must be there, because the trial was stopped")
    if trial.score is not None and not math.isfinite(trial.score):
        raise Malformed(f"field 'score' must be finite, not {trial.score}; without a usable score the trial has failed")
