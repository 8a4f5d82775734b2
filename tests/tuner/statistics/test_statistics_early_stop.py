"""Early stop: certain where it says so, and wrong with at most delta in all orders of the samples."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quaver import Criterion, EvaluationError, SettingsError
from quaver.statistics import EarlyStop, score_bounds
from quaver.statistics.early_stop import STAKES

PAIRS = {"same": (1.0, 1.0), "wrong": (0.0, 0.0), "lost": (1.0, 0.0), "gained": (0.0, 1.0)}


def orders(kinds: dict[str, int]) -> Iterator[list[str]]:
    """All different orders of the samples of each kind."""
    if not kinds:
        yield []
    for kind in kinds:
        rest = {name: count - (name == kind) for name, count in kinds.items() if count - (name == kind)}
        for order in orders(rest):
            yield [kind, *order]


@pytest.mark.parametrize("delta", [0.05, 0.2, 0.5])
@pytest.mark.parametrize(
    "kinds",
    [
        {"same": 10, "lost": 3},
        {"same": 7, "lost": 3, "gained": 1},
        {"same": 3, "wrong": 3, "lost": 2, "gained": 1},
        {"wrong": 8, "lost": 4},
        {"lost": 5, "gained": 5},
    ],
)
def test_of_all_orders_of_a_trial_on_the_border_at_most_delta_are_stopped(kinds: dict[str, int], delta: float) -> None:
    allowed = kinds.get("lost", 0) - kinds.get("gained", 0)
    stops = []
    for order in orders(kinds):
        fp32, int8 = np.array([PAIRS[kind] for kind in order]).T
        stops.append(EarlyStop(fp32, allowed, delta).update(int8))
    assert len(stops) > 200
    assert np.mean(stops) <= delta


def test_orders_are_stopped_that_look_bad_at_first() -> None:
    fp32 = np.ones(200)
    bad_first = np.r_[np.zeros(20), np.ones(180)]
    watch = EarlyStop(fp32, 20, 0.05)
    assert watch.update(bad_first[:30])
    assert not watch.certain


def test_the_wealth_is_that_of_the_formula() -> None:
    rng = np.random.default_rng(1)
    fp32, int8 = rng.random(40), rng.random(40)
    allowed = 0.03 * fp32.sum()
    watch = EarlyStop(fp32, allowed, 1e-9)
    x = (fp32 - int8 + 1) / 2
    b = (allowed / 40 + 1) / 2
    products = dict.fromkeys((0.25, 0.5, 1, 2, 4, 8, 16), 1.0)
    for t in range(25):
        mean = (40 * b - x[:t].sum()) / (40 - t)
        for stake in products:
            products[stake] *= 1 + min(stake, 0.9 / mean) * (x[t] - mean)
    watch.update(int8[:25])
    assert tuple(products) == tuple(STAKES)
    assert watch.wealth == pytest.approx(sum(products.values()) / 7, rel=1e-6)


def test_curtailment_comes_with_the_sample_that_settles_it() -> None:
    watch = EarlyStop(np.ones(100), 3, 1e-6)
    assert not watch.update([0.0, 0.0, 0.0])
    assert watch.update([0.0])
    assert watch.certain
    assert watch.seen == 4


def test_samples_that_int8_may_still_win_hold_curtailment_back() -> None:
    fp32 = np.r_[np.ones(50), np.zeros(2)]
    watch = EarlyStop(fp32, 3, 1e-6)
    assert not watch.update(np.zeros(5))
    assert watch.update(np.zeros(1))
    assert watch.certain


@pytest.mark.parametrize("higher", [True, False])
@settings(deadline=None)
@given(data=st.data())
def test_what_the_full_set_accepts_is_never_certain_to_fail(higher: bool, data: Any) -> None:
    count = data.draw(st.integers(1, 60))
    seed = data.draw(st.integers(0, 10_000))
    rng = np.random.default_rng(seed)
    digits = data.draw(st.sampled_from([0, 1, 16]))
    fp32, int8 = np.round(rng.random((2, count)), digits)
    loss = float(fp32.mean() - int8.mean()) if higher else float(int8.mean() - fp32.mean())
    criterion = Criterion(None, max(loss, 0.0), higher)
    assert criterion.met(float(fp32.mean()), float(int8.mean()))
    watch = EarlyStop(fp32, criterion.allowed * count, 0.05, higher_is_better=higher)
    for size in itertools.repeat(data.draw(st.integers(1, 7))):
        if watch.seen == count:
            break
        watch.update(int8[watch.seen : watch.seen + size])
        assert not watch.certain


@given(st.integers(0, 10_000), st.integers(1, 400))
@settings(deadline=None, max_examples=40)
def test_batches_change_nothing(seed: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    fp32 = (rng.random(400) < 0.9).astype(float)
    int8 = np.where(rng.random(400) < 0.1, 0.0, fp32)
    at_once, in_parts = EarlyStop(fp32, 4), EarlyStop(fp32, 4)
    at_once.update(int8)
    for first in range(0, 400, size):
        in_parts.update(int8[first : first + size])
    assert in_parts.wealth == pytest.approx(at_once.wealth)
    assert (in_parts.stopped, in_parts.certain) == (at_once.stopped, at_once.certain)


def test_a_hopeless_trial_of_many_samples_is_stopped_soon_and_a_good_one_never() -> None:
    rng = np.random.default_rng(2)
    fp32 = (rng.random(5000) < 0.8).astype(float)
    hopeless = np.where(rng.random(5000) < 0.3, 0.0, fp32)
    watch = EarlyStop(fp32, 0.01 * fp32.sum())
    while not watch.update(hopeless[watch.seen : watch.seen + 16]):
        pass
    assert watch.seen < 100
    same = EarlyStop(fp32, 0.01 * fp32.sum())
    assert not same.update(fp32)
    assert same.wealth < 1


def test_wealth_beyond_all_floats_is_no_error() -> None:
    watch = EarlyStop(np.ones(20_000), 1)
    assert watch.update(np.zeros(20_000))
    assert math.isfinite(watch.wealth)


def test_a_stop_stays() -> None:
    watch = EarlyStop(np.ones(200), 2)
    assert watch.update(np.zeros(10))
    assert watch.update(np.ones(190))
    assert watch.update([])


def test_scores_on_another_scale_give_the_same_stops() -> None:
    rng = np.random.default_rng(3)
    fp32, int8 = rng.random(300), rng.random(300) * 0.9
    one = EarlyStop(fp32, 2.0)
    percent = EarlyStop(100 * fp32, 200.0, bounds=(0, 100))
    error = EarlyStop(5 - fp32, 2.0, bounds=(4, 5), higher_is_better=False)
    for first in range(0, 300, 20):
        batch = int8[first : first + 20]
        assert one.update(batch) == percent.update(100 * batch) == error.update(5 - batch)
        assert one.wealth == pytest.approx(percent.wealth, rel=1e-3) == pytest.approx(error.wealth, rel=1e-3)
    assert one.stopped


def test_a_score_beyond_the_worse_bound_counts_as_the_bound() -> None:
    cosines = EarlyStop(np.ones(50), 1.0)
    clipped = EarlyStop(np.ones(50), 1.0)
    assert cosines.update([-1.0]) == clipped.update([0.0])
    assert cosines.wealth == clipped.wealth


def test_a_score_beyond_the_better_bound_ends_all_stops_of_the_trial() -> None:
    watch = EarlyStop(np.ones(50), 1.0)
    assert not watch.update([1.5])
    assert not watch.update(np.zeros(49))
    assert not watch.certain


def test_bounds_are_told_from_the_baseline() -> None:
    assert score_bounds([0, 1, 0.5]) == (0, 1)
    assert score_bounds([-0.5, 1]) == (-1, 1)
    assert score_bounds([20.0, 80.0]) == (0, 100)
    assert score_bounds([20.0, 800.0]) is None
    assert score_bounds([-7.0, -2.0]) is None
    assert score_bounds([3.0, 200.0], higher_is_better=False) == (0, 400)
    assert score_bounds([0.2, 0.9], higher_is_better=False) == (0, 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([], 1.0), "at least one sample"),
        (([1.0, math.nan], 1.0), "finite"),
        (([[1.0]], 1.0), "one finite fp32 score for each"),
        (([1.0], 1.0, 1.0), "`delta` must lie between 0 and 1, not 1.0"),
        (([300.0], 1.0), "pass `bounds="),
        (([0.5], 1.0, 0.05, (1.0, 0.0)), "the lower first"),
        (([0.5], 1.0, 0.05, (0.0, math.inf)), "finite"),
        (([0.5, 3.0], 1.0, 0.05, (0.0, 1.0)), "scores 0.5 to 3"),
    ],
)
def test_what_cannot_be_followed_is_named(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        EarlyStop(*arguments)


def test_samples_that_are_too_many_or_no_numbers_are_named() -> None:
    watch = EarlyStop(np.ones(4), 1.0)
    watch.update([1.0, 1.0])
    with pytest.raises(EvaluationError, match="sample 3: the score is not finite"):
        watch.update([1.0, math.nan])
    with pytest.raises(EvaluationError, match="sample 4: there is no such sample"):
        watch.update(np.ones(3))
