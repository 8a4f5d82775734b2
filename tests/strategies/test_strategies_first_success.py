"""What a strategy says about its first success is true, and no more than it must be."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quaver import QuantConfig
from quaver.strategies import make_strategy, strategies
from quaver.testing import SimulatedModel, drive
from quaver.testing.simulated import RANKINGS

COUNTED = [name for name in strategies() if make_strategy(name).first_success(SimulatedModel().space) is not None]


class Lawless(SimulatedModel):
    """Whether a trial meets the criterion has nothing to do with its ops; one in ten does."""

    def score(self, config: QuantConfig) -> float:
        return self.baseline if random.Random(f"{self.seed} {config.fingerprint}").random() < 0.1 else 0.0


def first_success(name: str, model: SimulatedModel, objective: str) -> int | None:
    trials = drive(name, model, objective=objective, max_trials=2000)
    return trials[-1].number if trials and trials[-1].met else None


def test_those_that_follow_no_order_promise_nothing() -> None:
    assert set(strategies()) - set(COUNTED) == {"bayesian", "random", "tpe"}


@pytest.mark.parametrize("name", COUNTED)
@settings(max_examples=40, deadline=None)
@given(
    ops=st.integers(1, 24),
    culprits=st.integers(0, 6),
    ranking=st.sampled_from(RANKINGS),
    slow=st.integers(0, 4),
    reluctant=st.integers(0, 2),
    noise=st.sampled_from([0.0, 0.01]),
    rules=st.sampled_from([{}, {"op00[0-3]": "int8"}, {"op00[0-3]": "fp32"}]),
    kind=st.sampled_from([SimulatedModel, Lawless]),
    objective=st.sampled_from(["latency", "size"]),
    seed=st.integers(0, 1000),
)
def test_no_first_success_comes_later_than_was_said(
    name: str, ops: int, culprits: int, slow: int, kind: type[SimulatedModel], objective: str, **shape: object
) -> None:
    model = kind(ops=ops, culprits=min(culprits, ops), slow=min(slow, ops), **shape)  # type: ignore[arg-type]
    said = make_strategy(name).first_success(model.space)
    found = first_success(name, model, objective)
    assert said is not None
    assert found is None or found <= said


def test_mse_counts_the_trial_in_which_all_ops_that_may_fall_back_do_so_together() -> None:
    """Rules keep the other ops in int8, so that something stays quantized."""
    model = Lawless(ops=5, culprits=0, reluctant=2, rules={"op00[0-3]": "int8"}, seed=481)
    assert first_success("mse", model, "latency") == make_strategy("mse").first_success(model.space) == 2


class OnlyTheLast(SimulatedModel):
    """Only the last configuration that a strategy tries meets the criterion."""

    def score(self, config: QuantConfig) -> float:
        return self.baseline if config == self.__dict__["good"] else 0.0


@pytest.mark.parametrize("name", ["basic", "mse_v2", "conservative"])
@pytest.mark.parametrize("ops", [2, 7, 20])
def test_the_first_success_may_take_just_as_long(name: str, ops: int) -> None:
    model = OnlyTheLast(ops=ops)
    model.__dict__["good"] = None
    tried = drive(name, model)
    model.__dict__["good"] = tried[-1].config
    assert first_success(name, model, "latency") == len(tried) == make_strategy(name).first_success(model.space)


def test_exhaustive_may_have_to_see_everything() -> None:
    rules = {"op.*": {"activation": {"algorithm": ["minmax"], "scheme": ["asym"]}}}
    space = SimulatedModel(ops=2, rules=rules).space
    assert make_strategy("exhaustive").first_success(space) == 9
