"""Records of trials, with their metrics, the scores of single samples, and figures measured later."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from quaver.history.pickle_check import MalformedRecord
from quaver.history.records.choices import CompactChoices, from_choice, from_indexes, to_choices, to_indexes, utf8
from quaver.history.records.fields import Fields, figures, from_number
from quaver.ops import OpConfig, QuantConfig
from quaver.scores import BITS, UNNAMED, WIDTHS, Samples, Score
from quaver.trial import Trial, TrialState
from quaver.types import PlainDict

# Judgement: metrics of one trial; users have a handful.
MAX_METRICS = 1000


def from_scores(scored: Trial | Score) -> PlainDict:
    """Return the fields of metrics and sample scores; a trial with a single number has none."""
    fields: PlainDict = {}
    if scored.metrics:
        fields["metrics"] = {name: from_number(value) for name, value in scored.metrics.items()}
    if scored.samples:
        fields["samples"] = {
            name: (samples.coding, samples.count, samples.data) for name, samples in scored.samples.items()
        }
    return fields


def to_scores(fields: Fields) -> PlainDict:
    """Return metrics and sample scores from the fields of a trial. Sample scores stay encoded as bytes."""
    metrics = figures(fields.take("metrics", dict), "metrics") if "metrics" in fields else {}
    encoded = fields.take("samples", dict) if "samples" in fields else {}
    if len(metrics) > MAX_METRICS or len(encoded) > MAX_METRICS:
        raise MalformedRecord(f"it has more than {MAX_METRICS:,} metrics")
    for name, value in metrics.items():
        utf8(name, "metrics")
        if not math.isfinite(value):
            raise MalformedRecord(f"metrics[{name!r:.80}] must be finite, not {value}")
    samples = {name: _to_samples(name, item) for name, item in encoded.items()}
    for name in samples:
        if name not in (metrics or (UNNAMED,)):
            raise MalformedRecord(f"samples[{name!r:.80}] is of no metric of the trial")
    return {"metrics": metrics, "samples": samples}


def _to_samples(name: object, item: object) -> Samples:
    where = f"samples[{name!r:.80}]"
    if type(name) is not str or type(item) is not tuple or [type(part) for part in item] != [str, int, bytes]:
        raise MalformedRecord(f"{where} must be a tuple of str, int, bytes under a str")
    utf8(name, "samples")
    coding, count, data = item
    if coding == BITS:
        size, has_stray_bits = (count + 7) // 8, bool(count % 8 and data and data[-1] & (0xFF >> count % 8))
    elif coding in WIDTHS:
        size, has_stray_bits = count * WIDTHS[coding], False
    else:
        raise MalformedRecord(f"{where} is encoded as {coding!r:.80}; known are {', '.join((BITS, *WIDTHS))}")
    if count < 1 or size != len(data) or has_stray_bits:
        raise MalformedRecord(f"{where} says {count} samples, and has {len(data)} bytes that do not fit")
    if coding != BITS and not np.isfinite(np.frombuffer(data, f"<{coding}")).all():
        raise MalformedRecord(f"{where} holds a score that is not finite")
    return Samples(coding, count, data)


# Judgement: characters of a traceback that are stored.
MAX_ERROR = 100_000
_STATES = frozenset(str(state) for state in TrialState)


def from_trial(trial: Trial, places: Mapping[str, int]) -> PlainDict:
    """Return the record of a trial.

    The config becomes the distinct choices and one index per op, in the order of `places`. Loss and verdict are left
    out: they follow from the scores and a criterion, which may change.
    """
    if len(trial.config) != len(places) or any(name not in trial.config for name in places):
        raise MalformedRecord("its config does not cover exactly the ops of the header")
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
    """Return the trial in a record, without loss and verdict."""
    fields = Fields(record, "trial")
    choices = to_choices(fields.take("choices", list))
    picks = to_indexes(fields.take("picks", bytes), len(choices), "picks")
    if len(picks) != len(places):
        raise MalformedRecord(f"field 'picks' is for {len(picks)} ops, and the header has {len(places)}")
    state = fields.take("state", str)
    if state not in _STATES:
        raise MalformedRecord(f"field 'state' must be one of {', '.join(TrialState)}, not {state!r:.80}")
    trial = Trial(
        number=fields.take("number", int),
        config=QuantConfig.adopt(CompactChoices(places, choices, picks)),
        state=TrialState(state),
        score=fields.take_optional("score", float),
        seconds=fields.take("seconds", float),
        build_seconds=fields.take("build_seconds", float),
        model_hash=fields.take("model_hash", str),
        model_size=fields.take("model_size", int),
        measured=figures(fields.take("measured", dict), "measured"),
        error=fields.take_optional("error", str),
        **_to_worker(fields),
        **to_scores(fields),
    )
    if schema == 1 and "loss" in fields:  # such a file may continue in the newest schema
        fields.take_optional("loss", float)
        fields.take("met", bool)
    fields.done()
    _check(trial)
    return trial


def _from_worker(trial: Trial) -> PlainDict:
    """Return the worker and the start time; nothing if the run evaluated the trial itself."""
    return {"worker": trial.worker, "started": from_number(trial.started)} if trial.worker else {}


def _to_worker(fields: Fields) -> PlainDict:
    if "worker" not in fields:
        return {}
    return {"worker": utf8(fields.take("worker", str), "worker"), "started": fields.take("started", float)}


def from_measured(number: int, measured: Mapping[str, float]) -> PlainDict:
    """Return the record of figures that were measured after the trial was recorded."""
    return {"kind": "measured", "number": number, "figures": _from_figures(measured)}


def to_measured(record: PlainDict) -> tuple[int, dict[str, float]]:
    """Return the number of a trial and the figures to add to it."""
    fields = Fields(record, "measured")
    number = fields.take("number", int)
    measured = figures(fields.take("figures", dict), "figures")
    fields.done()
    return number, measured


def _shortened(error: str | None) -> str | None:
    """Return the beginning and the end of a traceback, because a message may print a whole array."""
    if type(error) is not str or len(error) <= MAX_ERROR:
        return error
    return f"{error[: MAX_ERROR // 2]}\n[{len(error) - MAX_ERROR:,} characters left out]\n{error[-MAX_ERROR // 2 :]}"


def _from_figures(measured: Mapping[str, float]) -> PlainDict:
    return {name: from_number(value) for name, value in measured.items()}


def _check(trial: Trial) -> None:
    if not 0 <= trial.number < 2**31 or not 0 <= trial.model_size < 2**63:
        raise MalformedRecord("fields 'number' and 'model_size' must be 0 or more, and below 2**31 and 2**63")
    if not trial.failed and not trial.unscored and trial.score is None:
        raise MalformedRecord(f"field 'score' must be a float, because the trial is {trial.state}")
    if trial.unscored and trial.score is not None:
        raise MalformedRecord("field 'score' must be None, because the trial was not evaluated")
    if trial.stopped and not trial.samples:
        raise MalformedRecord("field 'samples' must be there, because the trial was stopped")
    if trial.score is not None and not math.isfinite(trial.score):
        raise MalformedRecord(
            f"field 'score' must be finite, not {trial.score}; without a usable score the trial has failed"
        )
