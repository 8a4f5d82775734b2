"""A budget for the model: what keeps it, and how far off the others are."""

from __future__ import annotations

import math
from typing import Any

import pytest
from fake import MINMAX

from quaver import Criterion, QuantConfig, SettingsError
from quaver.engine.scoring.judge import Judge
from quaver.engine.timing.objective import Accuracy, Latency, Size, make_objective, recorded_objective
from quaver.ops import FLOAT
from quaver.target_budget import TargetBudget
from quaver.trial import Trial, TrialState

CONFIG = QuantConfig({"a": MINMAX, "b": FLOAT})


def trial(number: int, score: float | None, latency: float | None = None, size: int = 0) -> Trial:
    measured = {} if latency is None else {"latency": latency}
    state = TrialState.FAILED if score is None else TrialState.COMPLETE
    return Trial(number, CONFIG, state, score, model_size=size, measured=measured)


def judged(target_budget: TargetBudget, *trials: Trial, higher: bool = True) -> Judge:
    judge = Judge(Criterion.within(target_budget, higher), make_objective("accuracy", target_budget))
    judge.begin(Trial(0, CONFIG, TrialState.COMPLETE, 0.9, model_size=1000))
    judge.extend(trials)
    return judge


def test_the_most_accurate_trial_within_the_budget_wins() -> None:
    judge = judged(TargetBudget(latency=0.6), trial(1, 0.80, 0.3), trial(2, 0.85, 0.6), trial(3, 0.89, 0.61))
    assert judge.best is not None and (judge.best.number, judge.best.met) == (2, True)
    assert [one.met for one in judge.trials] == [True, True, False]
    assert judge.best.loss == pytest.approx(0.05 / 0.9)


def test_what_is_lower_is_better_is_so_here_too() -> None:
    judge = judged(TargetBudget(latency=0.6), trial(1, 1.2, 0.3), trial(2, 1.0, 0.5), higher=False)
    assert judge.best is not None and judge.best.number == 2


def test_if_none_keeps_the_budget_the_nearest_to_it_is_best() -> None:
    judge = judged(TargetBudget(latency=0.3), trial(1, 0.80, 0.4), trial(2, 0.89, 0.7), trial(3, 0.81, 0.4))
    assert judge.best is not None and judge.best.number == 3 and not judge.met


def test_both_budgets_must_be_kept() -> None:
    target_budget = TargetBudget(latency=0.6, size=0.5)
    judge = judged(target_budget, trial(1, 0.89, 0.5, 600), trial(2, 0.8, 0.5, 500), trial(3, 0.85, 0.7, 300))
    assert judge.best is not None and judge.best.number == 2
    assert target_budget.excess(trial(1, 0.89, 0.5, 600), 1000) == pytest.approx(1.2)


def test_what_was_not_measured_does_not_keep_a_budget() -> None:
    assert TargetBudget(latency=0.9).excess(trial(1, 0.9), 1000) == math.inf
    assert TargetBudget(size=0.9).excess(trial(1, 0.9, 0.1), 1000) == math.inf
    assert not judged(TargetBudget(latency=0.9), trial(1, 0.9)).met


def test_a_run_without_time_to_improve_is_content_with_a_trial_that_loses_nothing() -> None:
    assert not judged(TargetBudget(latency=0.6), trial(1, 0.89, 0.5)).can_end
    assert judged(TargetBudget(latency=0.6), trial(1, 0.9, 0.5)).can_end
    assert not judged(TargetBudget(latency=0.6), trial(1, 0.9, 0.7)).can_end


def test_a_float_model_that_scores_zero_can_have_a_budget() -> None:
    judge = Judge(Criterion.within(TargetBudget(size=0.5)), make_objective("accuracy", TargetBudget(size=0.5)))
    judge.begin(Trial(0, CONFIG, TrialState.COMPLETE, 0.0, model_size=1000))
    assert judge.add(trial(1, -0.25, size=300)).loss == 0.25


def test_accuracy_is_compared_with_what_is_limited() -> None:
    assert type(make_objective("accuracy", TargetBudget(0.5)).trade_against) is Latency
    assert type(recorded_objective("accuracy", TargetBudget(size=0.5)).trade_against) is Size
    front = judged(TargetBudget(latency=0.6), trial(1, 0.80, 0.3), trial(2, 0.79, 0.4), trial(3, 0.89, 0.7)).pareto()
    assert [one.number for one in front] == [1, 3]
    assert isinstance(recorded_objective("accuracy"), Accuracy)


def test_recorded_settings_make_the_same_judge() -> None:
    settings = {"objective": "accuracy", "max_latency": 0.6, "max_size": None, "relative": None, "absolute": None}
    assert Criterion.from_settings(settings) == Criterion.within(TargetBudget(0.6))
    assert str(Criterion.from_settings(settings)) == "latency of at most 0.6 of fp32"


@pytest.mark.parametrize("value", [0, -0.1, 1.5, 60, True, "0.5", math.nan])
def test_a_budget_is_a_fraction_of_fp32(value: Any) -> None:
    with pytest.raises(SettingsError, match="`max_latency` must be a fraction of the fp32 model's"):
        TargetBudget(value)
    if value != "0.5":
        with pytest.raises(SettingsError, match="`max_size` must be"):
            TargetBudget(size=value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("130MB", 130e6),
        ("1.5 GiB", 1.5 * 2**30),
        (2048, 2048.0),
        ("40%", 0.4),
        ("0.5", 0.5),
        (0.25, 0.25),
        ("4096", 4096.0),
    ],
)
def test_a_size_is_a_fraction_or_bytes(text: Any, expected: float) -> None:
    assert TargetBudget(size=text).size == pytest.approx(expected)


def test_bytes_and_bits_become_a_fraction_of_fp32() -> None:
    budget = TargetBudget(size="50MB", bits=8.0)
    assert budget.size_limit(400_000_000) == 0.125 and budget.size_limit(100_000_000) == 0.25
    assert budget.relative_to(400_000_000) == TargetBudget(size=0.125)
    assert budget.is_kept(trial(1, 0.8, size=50_000_000), 400_000_000)
    assert not budget.is_kept(trial(1, 0.8, size=50_000_001), 400_000_000)
