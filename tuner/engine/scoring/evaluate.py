"""Call the user's eval_func, and turn a bad score into an error: the one place that does."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from quaver.engine.scoring.early_stop import EarlyStopReference, Stopping
from quaver.engine.scoring.failures import without_forks
from quaver.engine.scoring.parse_score import is_stream, read, read_batch
from quaver.errors import EvaluationError
from quaver.scores import UNNAMED, Floats, Samples, Score, too_many_scores
from quaver.suggestions import hint
from quaver.types import EvalFunc, ModelLike, PlainMapping

# An evaluation is slow if it takes this many times the baseline's seconds, and at least this many seconds. Judgement.
SLOW_FACTOR = 10
SLOW_SECONDS = 30.0


def bind_reference(eval_func: EvalFunc, fp32: Callable[[], ModelLike]) -> EvalFunc:
    """Give eval_func the fp32 model of this run, if it asks for it with a method `against`; return the result."""
    against = getattr(eval_func, "against", None)
    bound: EvalFunc = against(fp32) if callable(against) else eval_func
    return bound


def score(eval_func: EvalFunc, model: ModelLike, reference: EarlyStopReference | None = None) -> Score:
    """Call eval_func and return its score, which must have one of the known forms.

    A child that eval_func forks and that returns from it ends here.
    """
    with without_forks():
        return as_score(eval_func(model), reference)


def as_score(value: object, reference: EarlyStopReference | None = None) -> Score:
    """Convert what eval_func returned to a score.

    A generator is read to its end, or until its scores rule the model out by the reference; then it is closed.

    Raises:
        EvaluationError: the value has none of the known forms; the message says what to return.
    """
    if is_stream(value):
        return _read_stream(value, reference)
    return _make_score(read(value), reference)


def _read_stream(stream: Iterator[object], reference: EarlyStopReference | None) -> Score:
    parts: dict[str, list[Floats]] = {}
    counts: dict[str, int] = {}
    baseline = None if reference is None else reference.baseline
    stopping = None
    if reference is not None and baseline is not None and baseline.samples and reference.delta is not None:
        stopping = Stopping(reference.criterion, baseline, reference.delta)
    stopped = False
    try:
        for value in stream:
            batch = read_batch(value, counts)
            _check_names(batch, parts or (baseline.by_name if baseline else batch), "before" if parts else "for fp32")
            for name, scores in batch.items():
                parts.setdefault(name, []).append(scores)
                counts[name] = counts.get(name, 0) + len(scores)
                _check_count(name, counts[name], baseline, whole=False)
            _check_total(sum(counts.values()), baseline)
            stopped = stopping is not None and stopping.feed(batch)
            if stopped:
                break
    finally:
        close = getattr(stream, "close", None)
        if close is not None:
            close()
    if not any(counts.values()):
        raise EvaluationError("eval_func yielded no scores: is its data used up?")
    whole = all(baseline is not None and count == len(baseline.samples.get(name, ())) for name, count in counts.items())
    joined: dict[str, float | Floats] = {name: np.concatenate(arrays) for name, arrays in parts.items()}
    return _make_score(joined, reference, stopped and not whole, streamed=True)


def _make_score(
    scores_by_name: Mapping[str, float | Floats],
    reference: EarlyStopReference | None,
    stopped: bool = False,
    streamed: bool = False,
) -> Score:
    baseline = None if reference is None else reference.baseline
    if baseline is not None:
        _check_names(scores_by_name, baseline.by_name, "for fp32")
        scores_by_name = {name: scores_by_name[name] for name in baseline.by_name}
    _check_total(sum(len(scores) for scores in scores_by_name.values() if not isinstance(scores, float)), baseline)
    metrics: dict[str, float] = {}
    samples: dict[str, Samples] = {}
    for name, scores in scores_by_name.items():
        if isinstance(scores, float):
            _check_count(name, 0, baseline)
            metrics[name] = scores
            continue
        if not len(scores):
            raise EvaluationError(f"eval_func gave no scores{_for_metric(name)}")
        _check_count(name, len(scores), baseline, whole=not stopped)
        metrics[name] = float(scores.mean())
        samples[name] = Samples.of(scores)
        if (
            stopped and baseline is not None and name in baseline.samples
        ):  # samples not scored are assumed to differ as the scored ones do
            loss_per_sample = baseline.samples[name].array[: len(scores)] - scores
            metrics[name] = baseline.by_name[name] - float(loss_per_sample.mean())
    first = UNNAMED if reference is None else reference.criterion.first.metric
    value = metrics[first] if first in metrics else next(iter(metrics.values()))
    named = {} if set(metrics) == {UNNAMED} else metrics
    return Score(value, named, samples, stopped, streamed)


def _check_names(metrics: PlainMapping, expected: PlainMapping, when: str) -> None:
    """Refuse other metrics than the expected ones; their order does not matter."""
    for name in metrics:
        if name not in expected:
            raise EvaluationError(f"eval_func gave the metric {name!r} now, but not {when}; {hint(name, expected)}")
    for name in expected:
        if name not in metrics:
            raise EvaluationError(f"eval_func gave the metric {name!r} {when}, but not now; {hint(name, metrics)}")


def _check_count(name: str, count: int, baseline: Score | None, whole: bool = True) -> None:
    """Refuse another number of samples than for the fp32 model: they are compared one by one."""
    if baseline is None or name not in baseline.samples:
        return
    expected = len(baseline.samples[name])
    if count == 0:
        raise EvaluationError(
            f"eval_func gave one number{_for_metric(name)}, but the scores of {expected} samples for fp32"
        )
    if count > expected or (whole and count != expected):
        more = "more" if count > expected and not whole else f"the scores of {count}"
        raise EvaluationError(
            f"eval_func gave {more} samples{_for_metric(name)}, but of {expected} for fp32: they must be the same "
            "samples, in the same order, every time"
        )


def _check_total(count: int, baseline: Score | None) -> None:
    """Refuse more scores than can be recorded. The fp32 model tells, because each trial gives as many."""
    if baseline is None and (reason := too_many_scores(count)):
        raise EvaluationError(f"eval_func gave too many scores: {reason}")


def _for_metric(name: str) -> str:
    return "" if name == UNNAMED else f" for the metric {name!r}"


def slow_after(usual: float | None) -> float:
    """Return the seconds after which an evaluation is slow."""
    return math.inf if usual is None else max(SLOW_FACTOR * usual, SLOW_SECONDS)


@contextmanager
def watched(usual: float | None, warn: Callable[[float], None]) -> Iterator[None]:
    """Call `warn` with the seconds gone when the block takes far longer than usual. The block is not interrupted."""
    if usual is None:
        yield
        return
    start, wait = time.monotonic(), slow_after(usual)
    over = threading.Event()

    def warn_repeatedly() -> None:
        pause = wait
        while not over.wait(pause):
            warn(time.monotonic() - start)
            pause *= 2

    threading.Thread(target=warn_repeatedly, daemon=True, name="quaver-watch").start()
    try:
        yield
    finally:
        over.set()
