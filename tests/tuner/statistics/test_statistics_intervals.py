"""Intervals contain the loss as often as their level says; the confidence and the correction agree with them."""

from __future__ import annotations

import numpy as np
import pytest

from quaver.statistics import confidence, corrected, paired_interval


def flipped(count: int, lost: int, gained: int, right: float = 0.8) -> tuple[np.ndarray, np.ndarray]:
    """Scores of 0 and 1, a number of which differ."""
    fp32 = (np.arange(count) < right * count).astype(float)
    int8 = fp32.copy()
    int8[:lost] = 0
    int8[count - gained :] = 1
    return fp32, int8


def test_of_scores_of_0_and_1_it_is_the_interval_of_bonett_and_price() -> None:
    fp32, int8 = flipped(500, 20, 8)
    lost, gained = 21 / 502, 9 / 502
    reach = 1.959964 * np.sqrt((lost + gained - (lost - gained) ** 2) / 502)
    interval = paired_interval(fp32, int8, 0.95, relative=False)
    assert interval == pytest.approx((lost - gained - reach, lost - gained + reach), rel=1e-6)


@pytest.mark.parametrize("relative", [True, False])
@pytest.mark.parametrize("count", [200, 500, 2000])
@pytest.mark.parametrize("kind", ["many flips", "some flips", "continuous", "skewed"])
def test_95_percent_intervals_hold_the_loss_in_93_to_97_percent(kind: str, count: int, relative: bool) -> None:
    rng = np.random.default_rng(7)
    if "flips" in kind:
        fp32 = (rng.random(100_000) < 0.8).astype(float)
        changed = rng.random(100_000) < (0.2 if kind == "many flips" else 0.06)
        int8 = np.where(changed, (rng.random(100_000) < 0.75).astype(float), fp32)
    else:
        fp32 = rng.beta(5, 2, 100_000)
        change = rng.normal(0.005, 0.03, 100_000) if kind == "continuous" else rng.exponential(0.01, 100_000)
        int8 = np.clip(fp32 - change, 0, 1)
    truth = (fp32 - int8).mean() / (fp32.mean() if relative else 1.0)
    held = []
    for _ in range(1500):
        drawn = rng.integers(0, fp32.size, count)
        low, high = paired_interval(fp32[drawn], int8[drawn], 0.95, relative)
        held.append(low <= truth <= high)
    # 1,500 draws are off by 0.006. Where fewer than ten samples differ the level is kept, but not met closely.
    differ = count * np.mean(fp32 != int8)
    assert 0.93 <= np.mean(held) <= (0.975 if differ >= 10 else 1.0)


def test_models_that_agree_everywhere_are_not_known_to_be_the_same() -> None:
    fp32, _ = flipped(400, 0, 0)
    low, high = paired_interval(fp32, fp32, 0.95)
    assert low < 0 < high
    assert high == pytest.approx(np.sqrt(2) * 1.96 / 402 / 0.8, rel=1e-3)
    assert high > paired_interval(np.tile(fp32, 10), np.tile(fp32, 10), 0.95).high


def test_errors_turn_the_interval_around() -> None:
    rng = np.random.default_rng(1)
    fp32, int8 = rng.random(100), rng.random(100)
    low, high = paired_interval(fp32, int8, 0.9, relative=False)
    assert paired_interval(fp32, int8, 0.9, relative=False, higher_is_better=False) == pytest.approx((-high, -low))


def test_a_negative_mean_score_keeps_the_sign_of_the_loss() -> None:
    rng = np.random.default_rng(1)
    fp32 = -1 - rng.random(200)
    worse = fp32 - 0.1 + 0.01 * rng.random(200)
    low, high = paired_interval(fp32, worse, 0.95)
    assert 0 < low < (fp32 - worse).mean() / abs(fp32.mean()) * 1.01 < high


def test_sureness_is_the_level_of_the_interval_that_ends_there() -> None:
    fp32, int8 = flipped(500, 20, 8)
    high = paired_interval(fp32, int8, 0.9).high
    assert confidence(fp32, int8, high) == pytest.approx(0.95)
    assert confidence(fp32, int8, paired_interval(fp32, int8, 0.9).low) == pytest.approx(0.05)
    assert confidence(fp32, int8, 0.5) > 0.999


def test_scores_that_are_all_zero_leave_nothing_open() -> None:
    assert confidence(np.zeros(5), np.zeros(5), 0.0, relative=False) == 1.0
    assert confidence(np.zeros(5), np.zeros(5), -0.1, relative=False) == 0.0
    with pytest.raises(ValueError, match="mean score of 0"):
        paired_interval(np.zeros(5), np.zeros(5), 0.95)


def test_scores_that_do_not_pair_are_refused() -> None:
    with pytest.raises(ValueError, match=r"of shapes \(3,\) and \(4,\)"):
        paired_interval(np.ones(3), np.ones(4), 0.95)


def test_the_choice_among_several_needs_a_higher_level() -> None:
    assert corrected(0.95, 1) == pytest.approx(0.95)
    assert corrected(0.95, 10) == pytest.approx(0.995)
    assert corrected(0.95, 0) == pytest.approx(0.95)
