"""The forms of a score: what each becomes, and which sample or metric an error names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from quaver import Criterion, EvaluationError
from quaver.engine.scoring.early_stop import EarlyStopReference
from quaver.engine.scoring.evaluate import as_score
from quaver.scores import Samples, Score

SCORES = np.array([1.0, 0.0, 1.0, 1.0] * 25)
STANDARD = EarlyStopReference(Criterion(), as_score(SCORES), 0.05)
TWO = EarlyStopReference(Criterion(), as_score({"top1": SCORES, "f1": 0.5}), 0.05)


def batches(*values: Any) -> Iterator[Any]:
    yield from values


@pytest.mark.parametrize(
    "value",
    [
        SCORES,
        list(SCORES),
        tuple(SCORES),
        SCORES.astype(bool),
        SCORES.astype(np.float16),
        batches(SCORES[:9], SCORES[9:]),
    ],
    ids=["array", "list", "tuple", "bools", "halves", "batches"],
)
def test_scores_of_samples_are_their_mean(value: Any) -> None:
    taken = as_score(value)
    assert taken.value == SCORES.mean() and taken.metrics == {}
    assert np.array_equal(taken.samples["score"].array, SCORES)


def test_metrics_have_names_and_the_first_of_the_criterion_tells_the_trial() -> None:
    taken = as_score({"f1": 0.5, "top1": SCORES}, EarlyStopReference(Criterion({"top1": 0.01})))
    assert taken.value == SCORES.mean() and dict(taken.metrics) == {"f1": 0.5, "top1": SCORES.mean()}
    assert list(taken.samples) == ["top1"]


def test_metrics_may_come_in_any_order() -> None:
    taken = as_score({"f1": 0.25, "top1": SCORES}, TWO)
    assert list(taken.metrics) == ["top1", "f1"] and taken.value == SCORES.mean()


def test_one_number_at_a_time_is_a_sample_each() -> None:
    taken = as_score(batches(*SCORES))
    assert taken.streamed and len(taken.samples["score"]) == len(SCORES)


@pytest.mark.parametrize(
    ("value", "reference", "complaint"),
    [
        (SCORES[:99], STANDARD, "gave the scores of 99 samples, but of 100 for fp32"),
        (0.5, STANDARD, "gave one number, but the scores of 100 samples for fp32"),
        (batches(SCORES[:60]), STANDARD, "gave the scores of 60 samples, but of 100 for fp32"),
        (batches(SCORES, SCORES[:1]), STANDARD, "gave more samples, but of 100 for fp32"),
        (batches(SCORES[:40], np.array([1.0, np.nan])), STANDARD, "yielded nan for sample 41"),
        (batches(SCORES[:40], np.ones((2, 2))), STANDARD, "yielded a ndarray of shape (2, 2)"),
        (batches(SCORES[:40], None), STANDARD, "yielded None"),
        (batches({"a": SCORES[:40]}, {"b": SCORES[40:]}), None, "gave the metric 'b' now, but not before"),
        (batches({}), None, "yielded an empty dict"),
        (batches(), STANDARD, "yielded no scores"),
        (batches("good"), None, "yielded a str"),
        ({"top1": SCORES}, TWO, "gave the metric 'f1' for fp32, but not now"),
        ({"top1": SCORES, "f1": 0.5, "f2": 1.0}, TWO, "gave the metric 'f2' now, but not for fp32; did you mean 'f1'"),
        ({"top1": SCORES[:3], "f1": 0.5}, TWO, "gave the scores of 3 samples for the metric 'top1', but of 100"),
        ({1: 0.5}, None, "named a metric 1; the name of a metric is a text"),
    ],
)
def test_an_error_names_the_sample_or_the_metric(value: Any, reference: Any, complaint: str) -> None:
    with pytest.raises(EvaluationError) as caught:
        as_score(value, reference)
    assert complaint in str(caught.value)


def test_a_hopeless_stream_is_stopped_and_its_score_is_a_paired_estimate() -> None:
    read: list[int] = []

    def hopeless() -> Iterator[Any]:
        for first in range(0, 100, 10):
            read.append(first)
            yield np.zeros(10)

    taken = as_score(hopeless(), STANDARD)
    assert taken.stopped and len(read) < 10
    seen = len(taken.samples["score"])
    assert taken.value == pytest.approx(SCORES.mean() - SCORES[:seen].mean())
    full = as_score(hopeless(), EarlyStopReference(STANDARD.criterion, STANDARD.baseline, None))
    assert not full.stopped and full.value == 0.0


def test_a_baseline_without_scores_of_samples_stops_nothing() -> None:
    taken = as_score(batches(np.zeros(50), np.zeros(50)), EarlyStopReference(Criterion(), Score(0.75), 0.05))
    assert not taken.stopped and taken.value == 0.0


@pytest.mark.parametrize(
    ("scores", "coding", "size"),
    [
        (np.array([0.0, 1.0] * 50), "bits", 13),
        (np.array([0.5, 1.0] * 50), "f4", 400),
        (np.array([0.1, 1.0] * 50), "f8", 800),
        (np.array([-0.0, 1.0] * 50), "f4", 400),
        (np.array([1e300, 1.0] * 50), "f8", 800),
    ],
)
def test_samples_are_kept_exactly_in_as_few_bytes_as_that_takes(scores: Any, coding: str, size: int) -> None:
    kept = Samples.of(scores)
    assert (kept.coding, len(kept.data), len(kept)) == (coding, size, 100)
    assert kept.array.tobytes() == scores.tobytes() and kept.mean == scores.mean()
