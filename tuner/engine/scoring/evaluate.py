"""The one place where the user's eval_func is called, and where a bad score becomes an error."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from quaver.engine.scoring.early_stop import EarlyStopReference, Stopping
from quaver.engine.scoring.failures import without_forks
from quaver.engine.scoring.parse_score import is_stream, read, read_batch
from quaver.errors import EvaluationError
from quaver.scores import UNNAMED, Floats, Samples, Score, too_many_scores
from quaver.suggestions import hint
from quaver.types import EvalFunc, ModelLike, PlainMapping

# An evaluation that takes this many times the baseline's seconds (and at least this many) is called slow.
SLOW_FACTOR = 10
SLOW_SECONDS = 30.0


def bind_reference(eval_func: EvalFunc, fp32: Callable[[], Any]) -> Callable[[Any], Any]:
    """The same eval_func, told which the fp32 model of this run is if it asks for it by a method `against`."""
    against = getattr(eval_func, "against", None)
    return against(fp32) if callable(against) else eval_func


def score(eval_func: EvalFunc, model: ModelLike, reference: EarlyStopReference | None = None) -> Score:
    """Call eval_func and insist on a score in one of the known forms.

    A child that eval_func forks and that returns from it ends here.
    """
    with without_forks():
        return as_score(eval_func(model), reference)


def as_score(value: Any, reference: EarlyStopReference | None = None) -> Score:
    """What eval_func returned, in any form, as a score; anything else is an error that says what to return.

    A generator is gone through to its end, or until its scores rule the model out by the standard; then it is closed.
    """
    if is_stream(value):
        return _streamed(value, reference)
    return _made(read(value), reference)


def _streamed(stream: Iterator[Any], reference: EarlyStopReference | None) -> Score:
    parts: dict[str, list[Floats]] = {}
    seen: dict[str, int] = {}
    baseline = None if reference is None else reference.baseline
    stopping = None
    if reference is not None and baseline is not None and baseline.samples and reference.delta is not None:
        stopping = Stopping(reference.criterion, baseline, reference.delta)
    stopped = False
    try:
        for value in stream:
            batch = read_batch(value, seen)
            _check_names(batch, parts or (baseline.by_name if baseline else batch), "before" if parts else "for fp32")
            for name, scores in batch.items():
                parts.setdefault(name, []).append(scores)
                seen[name] = seen.get(name, 0) + len(scores)
                _check_count(name, seen[name], baseline, whole=False)
            _check_total(sum(seen.values()), baseline)
            stopped = stopping is not None and stopping.feed(batch)
            if stopped:
                break
    finally:
        close = getattr(stream, "close", None)
        if close is not None:
            close()
    if not any(seen.values()):
        raise EvaluationError("eval_func yielded no scores: is its data used up?")
    whole = all(baseline is not None and count == len(baseline.samples.get(name, ())) for name, count in seen.items())
    joined: dict[str, float | Floats] = {name: np.concatenate(arrays) for name, arrays in parts.items()}
    return _made(joined, reference, stopped and not whole, streamed=True)


def _made(
    found: Mapping[str, float | Floats],
    reference: EarlyStopReference | None,
    stopped: bool = False,
    streamed: bool = False,
) -> Score:
    baseline = None if reference is None else reference.baseline
    if baseline is not None:
        _check_names(found, baseline.by_name, "for fp32")
        found = {name: found[name] for name in baseline.by_name}
    _check_total(sum(len(scores) for scores in found.values() if not isinstance(scores, float)), baseline)
    metrics: dict[str, float] = {}
    samples: dict[str, Samples] = {}
    for name, scores in found.items():
        if isinstance(scores, float):
            _check_count(name, 0, baseline)
            metrics[name] = scores
            continue
        if not len(scores):
            raise EvaluationError(f"eval_func gave no scores{_for(name)}")
        _check_count(name, len(scores), baseline, whole=not stopped)
        metrics[name] = float(scores.mean())
        samples[name] = Samples.of(scores)
        if stopped and baseline is not None and name in baseline.samples:  # what was not seen differs as what was
            worse = baseline.samples[name].array[: len(scores)] - scores
            metrics[name] = baseline.by_name[name] - float(worse.mean())
    first = UNNAMED if reference is None else reference.criterion.first.metric
    value = metrics[first] if first in metrics else next(iter(metrics.values()))
    named = {} if set(metrics) == {UNNAMED} else metrics
    return Score(value, named, samples, stopped, streamed)


def _check_names(found: PlainMapping, expected: PlainMapping, when: str) -> None:
    """The same metrics every time, whatever their order."""
    for name in found:
        if name not in expected:
            raise EvaluationError(f"eval_func gave the metric {name!r}, and not {when}; {hint(name, expected)}")
    for name in expected:
        if name not in found:
            raise EvaluationError(f"eval_func gave the metric {name!r} {when}, and not now; {hint(name, found)}")


def _check_count(name: str, count: int, baseline: Score | None, whole: bool = True) -> None:
    """As many samples as for the fp32 model, and in the same order: only then they can be compared one by one."""
    if baseline is None or name not in baseline.samples:
        return
    expected = len(baseline.samples[name])
    if count == 0:
        raise EvaluationError(f"eval_func gave one number{_for(name)}, and the scores of {expected} samples for fp32")
    if count > expected or (whole and count != expected):
        more = "more" if count > expected and not whole else f"the scores of {count}"
        raise EvaluationError(
            f"eval_func gave {more} samples{_for(name)}, and of {expected} for fp32: they must be the same samples, in "
            "the same order, every time"
        )


def _check_total(count: int, baseline: Score | None) -> None:
    """Refuse more scores than can be recorded, when the fp32 model is scored: trials give as many as it."""
    if baseline is None and (why := too_many_scores(count)):
        raise EvaluationError(f"eval_func gave too many scores: {why}")


def _for(name: str) -> str:
    return "" if name == UNNAMED else f" for the metric {name!r}"


def slow_after(usual: float | None) -> float:
    """Seconds after which an evaluation is called slow."""
    return math.inf if usual is None else max(SLOW_FACTOR * usual, SLOW_SECONDS)


@contextmanager
def watched(usual: float | None, tell: Callable[[float], None]) -> Iterator[None]:
    """Call `tell` with the seconds gone when what is inside takes far longer than usual. It is never interrupted."""
    if usual is None:
        yield
        return
    start, wait = time.monotonic(), slow_after(usual)
    over = threading.Event()

    def look() -> None:
        pause = wait
        while not over.wait(pause):
            tell(time.monotonic() - start)
            pause *= 2

    threading.Thread(target=look, daemon=True, name="quaver-watch").start()
    try:
        yield
    finally:
        over.set()
