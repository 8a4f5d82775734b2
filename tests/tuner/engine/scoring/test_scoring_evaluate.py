"""What eval_func may return, and who is told when it takes too long."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quaver import Config, EvaluationError, QuantConfig, SettingsError, Trial, TrialState, read_snapshot
from quaver.engine.scoring import evaluate as evaluation
from quaver.engine.scoring.evaluate import as_score, score, watched
from quaver.history import Header, History
from quaver.scores import FLOAT64, MAX_SAMPLE_SCORES, Samples, Score


class Tensor:
    """As much of a torch tensor as matters here: `size` is a method, and `item` fails for more than one element."""

    def __init__(self, *values: float) -> None:
        self._values = values
        self.shape = (len(values),)

    def size(self) -> tuple[int, ...]:
        return self.shape

    def item(self) -> float:
        if len(self._values) != 1:
            raise RuntimeError("a Tensor with more than one element cannot be converted to Scalar")
        return self._values[0]


class Unconvertible:
    def __float__(self) -> float:
        raise ValueError("no way")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.5, 0.5),
        (1, 1.0),
        (0, 0.0),
        (-3.5, -3.5),
        (np.float32(0.5), 0.5),
        (np.float64(0.5), 0.5),
        (np.float16(0.5), 0.5),
        (np.int64(3), 3.0),
        (np.array(0.5), 0.5),
        (np.array([0.5]), 0.5),
        (np.array([[0.5]]), 0.5),
        (Tensor(0.5), 0.5),
        (Decimal("0.5"), 0.5),
    ],
)
def test_one_number_in_any_wrapping_is_a_score(value: Any, expected: float) -> None:
    taken = as_score(value)
    assert type(taken.value) is float and taken == Score(expected)


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (None, "returned None: is a `return` missing?"),
        ((0.5, 0.1), "returned a tuple, (0.5, 0.1); it must return one number"),
        ([0.5], "returned a list, [0.5]; it must return one number"),
        ({}, "returned an empty dict"),
        ({"accuracy": None}, "returned for the metric 'accuracy' None"),
        ({"accuracy": 0.5, "f1": math.nan}, "returned for the metric 'f1' nan"),
        ({"f1": np.array([0.5, np.nan])}, "returned for the metric 'f1' nan for sample 1: it is not finite"),
        ({0.5}, "returned a set"),
        ("0.5", "returned a str, '0.5'"),
        (b"0.5", "returned a bytes"),
        (True, "returned a bool, True"),
        (np.True_, "returned a bool"),
        (np.array(False), "returned a bool, False"),
        (1j, "returned a complex"),
        (np.complex128(1 + 2j), "returned a complex"),
        (np.ones((2, 3)), "a ndarray of shape (2, 3); it must be one number, or an array with one score for each"),
        (np.array([0.5, np.inf, np.nan]), "returned inf for sample 1, and 1 more like it"),
        (["good"] * 10, "that is not an array of numbers"),
        ([[1.0], [1.0, 2.0]] * 5, "that is not an array of numbers"),
        (np.array([]), "of shape (0,)"),
        (Tensor(0.5, 0.6), "a Tensor of shape (2,) that is not an array of numbers"),
        (math.nan, "returned nan: the score is not finite"),
        (np.float32("nan"), "returned nan"),
        (np.array(np.inf), "returned inf"),
        (-math.inf, "returned -inf"),
        (10**400, "returned a int that is not a number"),
        (object(), "returned a object that is not a number"),
        (Unconvertible(), "returned a Unconvertible that is not a number (no way)"),
        (lambda: 0.5, "returned a function that is not a number"),
    ],
)
def test_anything_else_is_an_error_that_says_what_to_return(value: Any, complaint: str) -> None:
    with pytest.raises(EvaluationError) as caught:
        as_score(value)
    assert str(caught.value).startswith("eval_func returned")
    assert complaint in str(caught.value)


def test_a_long_value_does_not_flood_the_message() -> None:
    with pytest.raises(EvaluationError) as caught:
        as_score(["x" * 1000] * 100_000)
    assert len(str(caught.value)) < 300


def test_eval_func_gets_the_model_and_its_own_errors_pass() -> None:
    assert score(lambda model: model * 2, 0.25) == Score(0.5)
    with pytest.raises(ZeroDivisionError):
        score(lambda model: 1 / model, 0)


def test_who_takes_far_longer_than_usual_is_reported_and_not_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "SLOW_SECONDS", 0.01)
    told: list[float] = []
    twice = threading.Event()

    def tell(seconds: float) -> None:
        told.append(seconds)
        if len(told) == 2:
            twice.set()

    with watched(0.0001, tell):
        assert twice.wait(30), "nobody was told"
    assert 0.01 <= told[0] < told[1]


def gone(threads: Iterable[threading.Thread]) -> bool:
    """Whether all of these threads end, given time enough on a busy machine."""
    for thread in threads:
        thread.join(30)
    return not any(thread.is_alive() for thread in threads)


def watchers() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "quaver-watch"}


def test_who_is_in_time_is_not_reported_and_the_watch_goes_home() -> None:
    told: list[float] = []
    before = watchers()
    with watched(3600.0, told.append):
        mine = watchers() - before
        assert len(mine) == 1
    assert gone(mine) and told == []


def test_the_watch_goes_home_when_the_evaluation_fails() -> None:
    before, mine = watchers(), set()
    with pytest.raises(ZeroDivisionError), watched(3600.0, lambda seconds: None):
        mine = watchers() - before
        _ = 1 / 0
    assert len(mine) == 1 and gone(mine)


def test_without_a_baseline_there_is_nothing_to_compare_with() -> None:
    before = watchers()
    with watched(None, lambda seconds: None):
        assert not watchers() - before


def test_more_scores_than_a_history_holds_are_refused_with_what_to_do() -> None:
    with pytest.raises(EvaluationError, match=r"9,000,000 scores of samples are more than the 8,257,536 .* fewer"):
        as_score(np.zeros(9_000_000))
    halves = {"one": np.zeros(4_200_000), "other": np.zeros(4_200_000)}
    with pytest.raises(EvaluationError, match="8,400,000 scores of samples"):
        as_score(halves)
    assert as_score(np.ones(MAX_SAMPLE_SCORES)).value == 1.0


def test_a_generator_is_ended_when_it_has_given_too_many_scores() -> None:
    batches = []

    def scores() -> Iterator[Any]:
        for index in range(100):
            batches.append(index)
            yield np.zeros(1_000_000)

    with pytest.raises(EvaluationError, match="9,000,000 scores of samples are more"):
        as_score(scores())
    assert batches == list(range(9))


def test_the_most_scores_that_are_taken_fit_a_frame_of_the_history(tmp_path: Path) -> None:
    values = np.random.default_rng(0).uniform(size=MAX_SAMPLE_SCORES)  # eight bytes each, no shorter form holds them
    samples = Samples.of(values)
    assert samples.coding == FLOAT64
    with History.create(tmp_path) as history:
        history.begin(Header("f" * 64, "onnxrt", (), {}, "2025-01-31T12:00:00+00:00"))
        history.start_run({}, {})
        trial = Trial(0, QuantConfig({}), TrialState.COMPLETE, samples.mean, samples={"score": samples})
        history.append(trial)
    assert read_snapshot(tmp_path).baseline == trial


def test_slices_of_too_many_samples_are_refused_as_a_setting() -> None:
    with pytest.raises(SettingsError, match="`slices` names too many samples: 8,400,000 scores"):
        Config(slices={"first": np.arange(8_400_000) < 3})
