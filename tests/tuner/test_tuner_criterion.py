"""When a score is good enough, and when to stop."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quaver import Budget, Criterion, SettingsError, StopReason
from quaver.slices import Slices

FINITE = st.floats(-1e6, 1e6)


@pytest.mark.parametrize(
    ("criterion", "baseline", "score", "met"),
    [
        (Criterion(), 0.80, 0.792, True),
        (Criterion(), 0.80, 0.7919, False),
        (Criterion(0.0), 0.80, 0.80, True),
        (Criterion(0.0), 0.80, 0.7999, False),
        (Criterion(0.01, higher_is_better=False), 20.0, 20.2, True),
        (Criterion(0.01, higher_is_better=False), 20.0, 20.21, False),
        (Criterion(None, 0.5), 70.0, 69.5, True),
        (Criterion(None, 0.5), 70.0, 69.4, False),
        (Criterion(None, 0.5, higher_is_better=False), 3.0, 3.5, True),
        (Criterion(None, 0.5, higher_is_better=False), 3.0, 3.6, False),
    ],
)
def test_a_loss_up_to_the_limit_is_allowed(criterion: Criterion, baseline: float, score: float, met: bool) -> None:
    assert criterion.met(baseline, score) is met


def test_a_relative_loss_from_a_negative_baseline_has_the_right_sign() -> None:
    criterion = Criterion(0.1)
    assert criterion.loss(-2.0, -2.4) == pytest.approx(0.2)
    assert not criterion.met(-2.0, -2.4)
    assert criterion.met(-2.0, -1.0)


def test_float_noise_of_the_subtraction_is_forgiven() -> None:
    assert 0.9 - 0.89 > 0.01  # what makes this test worth while
    assert Criterion(None, 0.01).met(0.9, 0.89)


@given(FINITE, FINITE, st.booleans())
def test_a_better_score_never_loses_more(baseline: float, score: float, higher: bool) -> None:
    criterion = Criterion(None, 0.0, higher)
    assert (criterion.loss(baseline, score) < 0) == criterion.better(score, baseline)


@given(FINITE.filter(bool), FINITE, FINITE, st.booleans())
def test_the_loss_orders_scores_as_better_does(baseline: float, one: float, other: float, higher: bool) -> None:
    criterion = Criterion(0.01, None, higher)
    if criterion.better(one, other):
        assert criterion.loss(baseline, one) <= criterion.loss(baseline, other)


def test_a_relative_criterion_needs_a_baseline_other_than_zero() -> None:
    with pytest.raises(SettingsError, match=r"the fp32 model scores 0.*`absolute=`"):
        Criterion().check_baseline(0.0)
    Criterion(None, 0.1).check_baseline(0.0)
    Criterion().check_baseline(-0.1)


@pytest.mark.parametrize("value", [-0.01, math.nan, math.inf, "0.01", True, [0.01]])
@pytest.mark.parametrize("name", ["relative", "absolute"])
def test_a_limit_that_is_no_number_of_at_least_zero_is_named(name: str, value: Any) -> None:
    with pytest.raises(SettingsError, match=f"`{name}` must be a number of at least 0, not"):
        Criterion(**{"relative": None, name: value})


@pytest.mark.parametrize(("relative", "absolute"), [(0.01, 0.01), (None, None)])
def test_a_criterion_is_relative_or_absolute(relative: float | None, absolute: float | None) -> None:
    with pytest.raises(SettingsError, match="one of the two"):
        Criterion(relative, absolute)


def test_a_criterion_says_what_it_asks_for() -> None:
    assert str(Criterion()) == "loss of at most 1.00%"
    assert str(Criterion(None, 0.5)) == "loss of at most 0.5"
    assert "lower is better" in str(Criterion(higher_is_better=False))


def test_criterion_and_budget_cannot_be_changed() -> None:
    for thing, name in ((Criterion(), "relative"), (Budget(), "timeout")):
        with pytest.raises(FrozenInstanceError):
            setattr(thing, name, 1.0)


def test_without_a_timeout_the_first_success_ends_the_run() -> None:
    assert Budget().spent(evaluated=1, seconds=1e9, met=True) is StopReason.MET
    assert Budget().spent(evaluated=1, seconds=1e9, met=False) is None


def test_with_a_timeout_success_does_not_end_the_run_but_time_does() -> None:
    budget = Budget(timeout=60)
    assert budget.spent(evaluated=1, seconds=59.9, met=True) is None
    assert budget.spent(evaluated=1, seconds=60.0, met=True) is StopReason.TIMEOUT


def test_max_trials_ends_the_run_whatever_the_rest_says() -> None:
    budget = Budget(timeout=60, max_trials=3)
    assert budget.spent(evaluated=2, seconds=0, met=False) is None
    assert budget.spent(evaluated=3, seconds=0, met=True) is StopReason.MAX_TRIALS
    assert Budget(max_trials=3).spent(evaluated=4, seconds=0, met=False) is StopReason.MAX_TRIALS


@pytest.mark.parametrize("timeout", [-1, math.nan, math.inf, "60", True, None])
def test_a_timeout_that_is_no_number_of_seconds_is_named(timeout: Any) -> None:
    with pytest.raises(SettingsError, match="`timeout` must be"):
        Budget(timeout=timeout)


@pytest.mark.parametrize("max_trials", [0, -1, 2.0, "5", True, None])
def test_max_trials_must_be_a_whole_number_of_at_least_one(max_trials: Any) -> None:
    with pytest.raises(SettingsError, match="`max_trials` must be a whole number of at least 1"):
        Budget(max_trials=max_trials)


def test_stop_reasons_read_as_words() -> None:
    assert f"stopped: {StopReason.MAX_TRIALS}" == "stopped: max_trials reached"


def test_a_number_is_the_limit_of_every_metric_and_a_dict_of_those_it_names() -> None:
    assert [limit.metric for limit in Criterion(0.01).limits(["top1", "f1"])] == ["top1", "f1"]
    assert [limit.metric for limit in Criterion({"f1": 0.01}).limits(["top1", "f1"])] == ["f1"]
    both = Criterion({"top1": 0.01}, {"wer": 0.5}, {"wer": False}).limits(["top1", "wer"])
    assert [(limit.relative, limit.allowed, limit.higher_is_better) for limit in both] == [
        (True, 0.01, True),
        (False, 0.5, False),
    ]


def test_losses_are_multiplied_so_that_every_limit_lies_at_the_largest() -> None:
    criterion = Criterion({"top1": 0.01, "f1": 0.02})
    top1, f1 = criterion.limits(["top1", "f1"])
    assert criterion.allowed == 0.02
    assert criterion.normalised(top1, 0.01) == criterion.normalised(f1, 0.02) == 0.02
    none = Criterion({"top1": 0.0, "f1": 0.02}).limits(["top1", "f1"])[0]
    assert Criterion({"top1": 0.0, "f1": 0.02}).normalised(none, 0.001) > 0.02
    assert Criterion({"top1": 0.0, "f1": 0.02}).normalised(none, -0.001) < 0.02


@given(st.floats(0, 0.5), st.floats(0, 0.5), st.floats(-1, 1))
def test_a_loss_is_beyond_its_limit_if_and_only_if_it_is_beyond_what_is_allowed(
    one: float, two: float, loss: float
) -> None:
    criterion = Criterion({"a": one, "b": two})
    for limit in criterion.limits(["a", "b"]):
        if abs(loss - limit.allowed) > 1e-9:
            assert (criterion.normalised(limit, loss) > criterion.allowed) is (loss > limit.allowed)


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        ({"relative": {}}, "`relative` is an empty dict"),
        ({"relative": {"f1": -1}}, "`relative` of 'f1' must be a number of at least 0, not -1"),
        ({"relative": {"f1": 0.1}, "absolute": {"f1": 0.1}}, "the metric 'f1' has a limit in `relative` and in"),
        ({"relative": {"f1": 0.1}, "absolute": 0.1}, "one of the two"),
        ({"higher_is_better": {"f1": 1}}, "`higher_is_better` must be True or False, not 1"),
        ({"confidence": 1.0}, "`confidence` must be between 0.5 and 1"),
        ({"confidence": 95}, "`confidence` must be between 0.5 and 1"),
        ({"slice_limit": 0.1}, "`slice_limit` goes with `slices`"),
        ({"slices": Slices.of(["cat"]), "slice_limit": {"cta": 0.1}}, "has no slice 'cta'; did you mean 'cat'"),
    ],
)
def test_limits_that_make_no_sense_are_named(said: dict[str, Any], complaint: str) -> None:
    with pytest.raises(SettingsError, match=complaint):
        Criterion(**said)
