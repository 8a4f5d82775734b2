"""The runs test says when samples are sorted, and keeps quiet when they are not."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from quaver.statistics import ordered


@pytest.mark.parametrize("scores", [(1, 1, 1, 0, 0, 0), (1, 1, 0, 1, 0, 1, 0), (0.1, 0.2, 0.7, 0.4, 0.5, 0.9, 0.3)])
def test_the_p_value_is_the_share_of_orders_with_as_few_changes(scores: tuple[float, ...]) -> None:
    middle = np.median(scores) if max(scores) > np.median(scores) else np.mean(scores)

    def changes(order: tuple[float, ...]) -> int:
        good = np.array(order) > middle
        return int((good[1:] != good[:-1]).sum())

    share = np.mean([changes(order) <= changes(scores) for order in permutations(scores)])
    assert ordered(scores) == pytest.approx(share)


def test_sorted_samples_are_found() -> None:
    rng = np.random.default_rng(0)
    scores = (rng.random(1000) < 0.8).astype(float)
    assert ordered(np.sort(scores)) < 1e-9
    assert ordered(np.sort(rng.random(1000))) < 1e-9
    by_class = np.concatenate([rng.random(100) < right for right in np.linspace(0.2, 1, 10)])
    assert ordered(by_class) < 0.01


def test_random_order_is_called_ordered_as_often_as_the_level_says() -> None:
    rng = np.random.default_rng(0)
    found = [ordered(rng.random(300) < 0.8) < 0.05 for _ in range(1000)]
    assert np.mean(found) < 0.07


def test_samples_that_alternate_are_in_order_enough() -> None:
    assert ordered([0, 1] * 100) > 0.99


@pytest.mark.parametrize("scores", [[], [1.0], [1.0] * 50, [0.0] * 50])
def test_scores_that_do_not_differ_have_no_order(scores: list[float]) -> None:
    assert ordered(scores) == 1.0


def test_a_million_samples_are_no_trouble() -> None:
    rng = np.random.default_rng(0)
    assert ordered(rng.random(1_000_000) < 0.9) > 1e-6
