"""Read the forms in which eval_func may give a score; errors name the sample and the metric."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, TypeGuard

import numpy as np

from quaver.errors import EvaluationError
from quaver.scores import UNNAMED, Floats

# A list or tuple of fewer numbers is more likely several metrics without names than a score for each sample. Judgement.
MIN_SAMPLES = 10
# Types that are neither a number nor the score of a sample.
_NOT_NUMBERS = (tuple, list, dict, set, str, bytes, bool, complex)


def is_stream(value: object) -> TypeGuard[Iterator[object]]:
    """Return True if scores come batch by batch."""
    return isinstance(value, Iterator)


def read(value: Any) -> dict[str, float | Floats]:
    """Return each metric as one number or as a score for each sample; a metric without a name is called "score"."""
    if not isinstance(value, Mapping):
        return {UNNAMED: _one_or_many(value, "eval_func returned")}
    if not value:
        raise EvaluationError("eval_func returned an empty dict; it must hold a number or an array for each metric")
    return {name: _one_or_many(item, f"eval_func returned for the metric {name!r}") for name, item in _named(value)}


def read_batch(value: Any, counts: Mapping[str, int]) -> dict[str, Floats]:
    """Return the scores of the next samples, which a generator yielded, by metric.

    Args:
        value: what the generator yielded.
        counts: the number of samples before these, by metric.
    """
    if not isinstance(value, Mapping):
        return {UNNAMED: _many(value, "eval_func yielded", counts.get(UNNAMED, 0))}
    if not value:
        raise EvaluationError("eval_func yielded an empty dict; it must hold an array of scores for each metric")
    return {
        name: _many(item, f"eval_func yielded for the metric {name!r}", counts.get(name, 0))
        for name, item in _named(value)
    }


def _named(value: Mapping[Any, Any]) -> Iterator[tuple[str, Any]]:
    for name, item in value.items():
        if not isinstance(name, str) or not name:
            raise EvaluationError(f"eval_func named a metric {name!r:.60}; the name of a metric is a text")
        yield name, item


def _one_or_many(value: Any, prefix: str) -> float | Floats:
    if value is None:
        raise EvaluationError(f"{prefix} None: is a `return` missing?")
    if isinstance(value, list | tuple):
        if len(value) < MIN_SAMPLES:
            raise EvaluationError(
                f"{prefix} a {type(value).__name__}, {value!r:.60}; it must return one number. Several metrics are a "
                "dict with a name for each, and scores of samples an array"
            )
        return _scores(value, prefix, 0)
    if not hasattr(value, "item") or not callable(value.item):
        return _number(value, prefix)
    if math.prod(getattr(value, "shape", ()) or ()) <= 1:  # of one element, whatever its shape
        return _number(_item(value, prefix), prefix)
    return _scores(value, prefix, 0)


def _many(value: Any, prefix: str, before: int) -> Floats:
    """Return the scores of a batch; one number is a batch of one sample."""
    if value is None:
        raise EvaluationError(f"{prefix} None; it must yield the scores of a batch of samples")
    if not isinstance(value, list | tuple | set | str | bytes) and np.ndim(value) == 0:
        number = _number(_item(value, prefix) if hasattr(value, "item") else value, f"{prefix}, for sample {before},")
        return np.array([number])
    return _scores(value, prefix, before)


def _scores(value: Any, prefix: str, before: int) -> Floats:
    name = type(value).__name__
    try:
        array = np.asarray(value)
        scores = array.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        scores = array = np.empty(0, object)
    if array.dtype.kind not in "biuf":
        shape = getattr(value, "shape", None)
        of = f" of shape {tuple(shape)}" if shape is not None else f", {value!r:.60},"
        raise EvaluationError(f"{prefix} a {name}{of} that is not an array of numbers")
    if scores.ndim != 1:
        raise EvaluationError(
            f"{prefix} a {name} of shape {scores.shape}; it must be one number, or an array with one score for each "
            "sample (its mean over the other axes?)"
        )
    wrong = np.flatnonzero(~np.isfinite(scores))
    if wrong.size:
        more = f", and {wrong.size - 1} more like it" if wrong.size > 1 else ""
        raise EvaluationError(f"{prefix} {scores[wrong[0]]} for sample {before + wrong[0]}{more}: it is not finite")
    return scores


def _item(value: Any, prefix: str) -> Any:
    try:
        return value.item()
    except Exception:
        shape = getattr(value, "shape", "unknown")
        raise EvaluationError(
            f"{prefix} a {type(value).__name__} of shape {shape}; it must be one number, or a score for each sample"
        ) from None


def _number(value: Any, prefix: str) -> float:
    name = type(value).__name__
    if isinstance(value, _NOT_NUMBERS):
        raise EvaluationError(f"{prefix} a {name}, {value!r:.60}; it must be one number, the score to tune by")
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise EvaluationError(f"{prefix} a {name} that is not a number ({error})") from None
    if not math.isfinite(number):
        raise EvaluationError(f"{prefix} {number}: the score is not finite")
    return number
