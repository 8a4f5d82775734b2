"""Strategies fall back to bf16 first, and to fp32 only if bf16 misses the criterion."""

from __future__ import annotations

from dataclasses import replace

import pytest

from quaver.criterion import Criterion
from quaver.ops import BFLOAT, FLOAT
from quaver.strategies.float_precision import FloatView
from quaver.testing import SimulatedModel, drive

MANY = tuple(f"op{index:03}" for index in range(20))
STRATEGIES = ["auto", "basic", "bayesian", "conservative", "exhaustive", "mse", "mse_v2", "random", "tpe"]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_ops_that_int8_hurts_fall_back_to_bf16(strategy: str) -> None:
    model = SimulatedModel(ops=8, culprits=["op005"], bf16=0.6)
    trials = drive(strategy, model, max_trials=200)
    assert trials[-1].met
    assert trials[-1].config["op005"] == BFLOAT
    assert not any(trial.config.fp32_ops for trial in trials)


def test_a_model_without_culprits_runs_in_int8_where_that_is_faster() -> None:
    (trial,) = drive("auto", SimulatedModel(ops=20, culprits=0, bf16=0.6))
    assert trial.met and not trial.config.bf16_ops


def test_the_model_in_bf16_comes_first_where_nothing_is_faster() -> None:
    model = SimulatedModel(ops=20, culprits=0, bf16=0.2)
    (trial,) = drive("auto", model)
    assert trial.met and trial.config.bf16_ops == MANY


def test_the_model_in_bf16_is_tried_after_a_few_failures() -> None:
    model = SimulatedModel(ops=20, culprits=MANY, bf16=0.9)
    trials = drive("basic", model)
    assert trials[-1].met and trials[-1].config.bf16_ops == MANY
    assert len(trials) == 5


@pytest.mark.parametrize("strategy", ["auto", "basic"])
def test_ops_that_bf16_hurts_run_in_fp32(strategy: str) -> None:
    model = SimulatedModel(ops=20, culprits=MANY, bf16=0.9, bf16_culprits=("op003", "op011"))
    trials = drive(strategy, model)
    best = trials[-1]
    assert best.met
    assert {"op003", "op011"} <= set(best.config.fp32_ops)
    assert len(best.config.fp32_ops) <= 4
    in_bf16 = next(index for index, trial in enumerate(trials) if len(trial.config.bf16_ops) == len(MANY))
    assert not trials[in_bf16].met


def test_int8_and_fp32_are_tried_where_bf16_hurts_everywhere() -> None:
    model = SimulatedModel(ops=8, culprits=["op005"], bf16=0.2, bf16_culprits=MANY[:8], damage=0.05)
    best = drive("auto", model)[-1]
    assert best.met and "op005" in best.config.fp32_ops
    assert best.config.int8_ops and not best.config.bf16_ops


def test_bf16_is_left_out_where_speed_does_not_count() -> None:
    model = SimulatedModel(ops=8, culprits=["op005"], bf16=0.6)
    trials = drive("auto", model, objective="size")
    assert trials[-1].met
    assert not any(trial.config.bf16_ops for trial in trials)


def test_rules_can_forbid_either_precision() -> None:
    only = SimulatedModel(ops=8, culprits=["op005"], bf16=0.6, rules={"op005": "bf16", "op006": "fp32"})
    trials = drive("basic", only)
    assert {trial.config["op005"] for trial in trials} == {BFLOAT}
    assert {trial.config["op006"] for trial in trials} == {FLOAT}


def test_a_wider_run_makes_the_same_kind_of_trials() -> None:
    model = SimulatedModel(ops=20, culprits=MANY[:6], bf16=0.6)
    best = drive("auto", model, Criterion(relative=0.01), width=4)[-1]
    assert best.met and set(best.config.bf16_ops) >= set(MANY[:6])


def test_trials_of_a_run_are_repeated_by_a_resumed_one() -> None:
    model = SimulatedModel(ops=20, culprits=MANY[:6], bf16=0.6, bf16_culprits=MANY[:1])
    trials = drive("auto", model)
    again = drive("auto", model, earlier=trials[:3])
    assert [trial.config for trial in again] == [trial.config for trial in trials]


def test_a_strategy_sees_one_float_precision() -> None:
    model = SimulatedModel(ops=4, bf16=0.6)
    view = FloatView(model.space)
    assert all(BFLOAT not in op.choices for op in view.space.ops)
    config = view.space.default_config().fallback("op001")
    assert view.to_outer(config)["op001"] == BFLOAT
    assert view.without_bf16().to_outer(config) == config
    assert not FloatView(replace(model, bf16=0.0).space).offers_bf16
