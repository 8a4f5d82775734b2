"""Several metrics and the scores of samples, as fields of a trial. Trials with one number have none of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from quaver.history.pickle_check import Malformed
from quaver.history.records.choices import Spread, from_choice, from_indexes, to_choices, to_indexes, utf8
from quaver.history.records.fields import Fields, figures, from_number
from quaver.ops import OpConfig, QuantConfig
from quaver.scores import BITS, UNNAMED, WIDTHS, Samples, Score
from quaver.trial import Trial, TrialState
from quaver.types import PlainDict

# Metrics of one trial.
MAX_METRICS = 1000


def from_scores(scored: Trial | Score) -> PlainDict:
    """The fields, as far as there is something to say."""
    found: PlainDict = {}
    if scored.metrics:
        found["metrics"] = {name: from_number(value) for name, value in scored.metrics.items()}
    if scored.samples:
        found["samples"] = {name: (one.coding, one.count, one.data) for name, one in scored.samples.items()}
    return found


def to_scores(taken: Fields) -> PlainDict:
    """The same for a trial. The scores of samples stay bytes, which fit what is said about them."""
    metrics = figures(taken.take("metrics", dict), "metrics") if "metrics" in taken else {}
    given = taken.take("samples", dict) if "samples" in taken else {}
    if len(metrics) > MAX_METRICS or len(given) > MAX_METRICS:
        raise Malformed(f"it has more than {MAX_METRICS:,} metrics")
    for name, value in metrics.items():
        utf8(name, "metrics")
        if not math.isfinite(value):
            raise Malformed(f"metrics[{name!r:.80}] must be finite, not {value}")
    samples = {name: _to_samples(name, item) for name, item in given.items()}
    for name in samples:
        if name not in (metrics or (UNNAMED,)):
            raise Malformed(f"samples[{name!r:.80}] is of no metric of the trial")
    return {"metrics": metrics, "samples": samples}


def _to_samples(name: Any, item: Any) -> Samples:
    where = f"samples[{name!r:.80}]"
    if type(name) is not str or type(item) is not tuple or [type(part) for part in item] != [str, int, bytes]:
        raise Malformed(f"{where} must be a tuple of str, int, bytes under a str")
    utf8(name, "samples")
    coding, count, data = item
    if coding == BITS:
        size, wrong = (count + 7) // 8, bool(count % 8 and data and data[-1] & (0xFF >> count % 8))
    elif coding in WIDTHS:
        size, wrong = count * WIDTHS[coding], False
    else:
        raise Malformed(f"{where} is kept as {coding!r:.80}; known are {', '.join((BITS, *WIDTHS))}")
    if count < 1 or size != len(data) or wrong:
        raise Malformed(f"{where} says {count} samples, and has {len(data)} bytes that do not fit")
    if coding != BITS and not np.isfinite(np.frombuffer(data, f"<{coding}")).all():
        raise Malformed(f"{where} holds a score that is not finite")
    return Samples(coding, count, data)


# Characters of a traceback that are kept.
MAX_ERROR = 100_000
_STATES = frozenset(str(state) for state in TrialState)


def from_trial(trial: Trial, places: Mapping[str, int]) -> PlainDict:
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


def to_trial(record: PlainDict, places: Mapping[str, int], schema: int) -> Trial:
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


def _from_worker(trial: Trial) -> PlainDict:
    """Who evaluated it and when; nothing if the run did so itself."""
    return {"worker": trial.worker, "started": from_number(trial.started)} if trial.worker else {}


def _to_worker(taken: Fields) -> PlainDict:
    if "worker" not in taken:
        return {}
    return {"worker": utf8(taken.take("worker", str), "worker"), "started": taken.take("started", float)}


def from_measured(number: int, measured: Mapping[str, float]) -> PlainDict:
    """The record of figures that were taken of a trial after it was recorded."""
    return {"kind": "measured", "number": number, "figures": _from_figures(measured)}


def to_measured(record: PlainDict) -> tuple[int, dict[str, float]]:
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


def _from_figures(measured: Mapping[str, float]) -> PlainDict:
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
