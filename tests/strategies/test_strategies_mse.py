"""`mse` takes back a fallback that did not help."""

from __future__ import annotations

import pytest

from quaver.testing import SimulatedModel, check_strategy, drive


def fallen(trial):
    return set(trial.config.fp32_ops)


@pytest.mark.parametrize("ranking", ["right", "weak", "useless"])
@pytest.mark.parametrize("seed", range(5))
def test_only_the_culprits_stay_in_fp32_whatever_the_ranking_is_worth(ranking, seed):
    model = SimulatedModel(ops=70, culprits=5, ranking=ranking, seed=seed)
    last = drive("mse", model)[-1]
    assert last.met
    assert fallen(last) == set(model.guilty)


def test_hardly_an_evaluation_is_spent_that_adding_up_would_not_spend():
    model = SimulatedModel(ops=70, culprits=5, ranking="useless")
    order = sorted(model.space.tunable, key=lambda name: -model.probe.mse()[name])
    needed = max(order.index(name) for name in model.guilty) + 1
    together = 5  # of 3, 6, 12, 24 and 48 that were taken back
    assert len(drive("mse", model)) <= 1 + needed + together


def test_ops_that_only_help_together_are_found_together():
    model = SimulatedModel(ops=20, culprits=1, pairs=1)
    trials = drive("mse", model)
    assert trials[-1].met
    assert set(model.guilty) <= fallen(trials[-1])
    assert len(trials) <= 5


def test_ops_far_apart_that_only_help_together_are_found_in_the_end():
    model = SimulatedModel(ops=20, culprits=1, pairs=1, ranking="useless", seed=1)
    assert drive("mse", model)[-1].met


def test_with_time_left_ops_return_to_int8():
    model = SimulatedModel(ops=20, culprits=1, pairs=1, ranking="weak", seed=3)
    trials = drive("mse", model, stop_at_first=False)
    fewest = min((trial for trial in trials if trial.met), key=lambda trial: len(fallen(trial)))
    assert fallen(fewest) == set(model.guilty)


def test_the_contract_is_kept():
    check_strategy("mse")
