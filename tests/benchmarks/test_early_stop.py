"""The benchmarks of early stop and of intervals: their populations are what they say, and few runs show the same."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import early_stop
from quaver import Criterion


@pytest.mark.parametrize("kind", early_stop.BORDER)
@pytest.mark.parametrize("count", [500, 2000, 10_000])
def test_a_trial_on_the_border_would_be_accepted_and_loses_no_less(kind: str, count: int) -> None:
    fp32, int8 = early_stop.population(kind, count, early_stop.ALLOWED)
    assert Criterion(early_stop.ALLOWED).met(float(fp32.mean()), float(int8.mean()))
    assert not Criterion(0.999 * early_stop.ALLOWED).met(float(fp32.mean()), float(int8.mean()))
    for scores in (fp32, int8):
        assert scores.min() >= 0 and scores.max() <= 1


def test_hardly_any_trial_on_the_border_is_stopped_and_many_are_by_peeking() -> None:
    found = {
        rule: np.mean([seen is not None for seen in early_stop.stops(rule, "many flips", 500, 16, 0.01, 200)])
        for rule in early_stop.RULES
    }
    assert found["early stop"] <= 0.08  # 200 runs are off by 0.015
    assert found["Hoeffding race"] == found["Bernstein race"] == 0
    assert found["peeking with a z-test"] > 0.15


def test_hopeless_trials_cost_less_with_early_stop_than_with_races() -> None:
    seen = {
        rule: np.mean([at or 2000 for at in early_stop.stops(rule, "few flips", 2000, 16, 0.3, 10)])
        for rule in early_stop.RULES
    }
    assert seen["early stop"] < 0.05 * 2000 < seen["Hoeffding race"] < seen["Bernstein race"] < 2000
