"""Sensitive ops get another quantized choice before they fall back, if it has less error and is faster than fp32."""

from __future__ import annotations

import itertools

import pytest

from quaver.ops import FLOAT, INT8, Op, OpConfig, QuantConfig
from quaver.space import TuningSpace
from quaver.strategies import make_strategy
from quaver.strategies.steps.alternatives import Alternatives, alternatives, families, on_offer, quantize_all, variants
from quaver.testing import SimulatedModel, check_strategy, drive
from quaver.testing.simulated import WITH_WEIGHTS

STATIC, DYNAMIC, WEIGHTS = OpConfig(INT8), OpConfig(INT8, mode="dynamic"), OpConfig(INT8, mode="weight_only")
MILD = {"weight_only": 0.01}


def weighty(model: SimulatedModel) -> set[str]:
    return {op.name for op in model.space.ops if op.kind in WITH_WEIGHTS}


def guilty_with_weights(**shape: object) -> SimulatedModel:
    """A model all of whose culprits have a milder mode."""
    for seed in itertools.count():
        model = SimulatedModel(ops=24, culprits=3, seed=seed, **shape)  # type: ignore[arg-type]
        if set(model.guilty) <= weighty(model):
            return model
    raise AssertionError


def found(model: SimulatedModel, timed: bool = True) -> Alternatives | None:
    start = model.space.default_config()
    times = model.probe.time_model(start) if timed else None
    return alternatives(start, model.probe.sensitivity(start), model.space, model.probe, times)


def test_the_culprits_run_in_the_mode_that_is_milder() -> None:
    model = guilty_with_weights(modes={"weight_only": 0.8}, relief=MILD)
    other = found(model)
    assert other is not None
    assert set(model.guilty) <= set(other.changed)
    assert all(other.config[name].mode == "weight_only" for name in other.changed)
    assert all(other.sensitivity[name] < 0.02 * model.sensitivity[name] for name in other.changed)


def test_a_mode_that_is_slower_than_fp32_is_not_taken_where_time_counts() -> None:
    model = guilty_with_weights(modes={"weight_only": 1.2}, relief=MILD)
    assert found(model) is None
    assert found(model, timed=False) is not None


def test_a_mode_that_does_as_much_harm_is_not_taken() -> None:
    assert found(guilty_with_weights(modes={"dynamic": 0.3}, relief={"dynamic": 0.8})) is None


def test_of_two_modes_that_are_as_mild_the_faster_one_is_taken() -> None:
    model = guilty_with_weights(
        modes={"weight_only": 0.8, "dynamic": 0.4}, relief={"weight_only": 0.01, "dynamic": 0.015}
    )
    other = found(model)
    assert other is not None
    assert {other.config[name].mode for name in other.changed} == {"dynamic"}


def test_steps_change_more_and_more_ops() -> None:
    model = guilty_with_weights(modes={"weight_only": 0.8}, relief=MILD)
    other = found(model)
    assert other is not None
    start = model.space.default_config()
    counts = [sum(one[name] != start[name] for name in start) for one in other.steps(start, 6)]
    assert counts == sorted(set(counts))
    assert (counts[0], counts[-1]) == (1, len(other.changed))


@pytest.mark.parametrize("objective", ["latency", "size"])
def test_auto_repairs_culprits_by_another_mode_and_leaves_nothing_in_fp32(objective: str) -> None:
    model = guilty_with_weights(modes={"weight_only": 0.8}, relief=MILD)
    first = next(trial for trial in drive("auto", model, objective=objective) if trial.met)
    assert first.config.fp32_ops == ()
    assert {first.config[name].mode for name in model.guilty} == {"weight_only"}
    assert first.number <= 3


def test_auto_begins_with_a_mode_that_is_faster() -> None:
    model = guilty_with_weights(modes={"dynamic": 0.1})
    first = drive("auto", model)[0]
    assert all(first.config[name].mode == "dynamic" for name in weighty(model))


@pytest.mark.parametrize("name", ["auto", "basic", "bayesian", "conservative", "exhaustive", "mse", "mse_v2", "random"])
def test_every_strategy_keeps_its_promises_with_modes(name: str) -> None:
    model = SimulatedModel(ops=6, culprits=2, modes={"dynamic": 0.3, "weight_only": 0.8}, relief=MILD)
    strategy = make_strategy(name)
    trials = drive(name, model, max_trials=300)
    worst = strategy.worst_case(model.space)
    assert worst is None or len(trials) <= worst
    assert all(model.space.allows(trial.config) for trial in trials)


@pytest.mark.parametrize("name", ["basic", "bayesian", "exhaustive", "mse", "random"])
def test_modes_are_in_the_space_of(name: str) -> None:
    model = guilty_with_weights(modes={"weight_only": 0.8}, relief=MILD)
    trials = drive(name, model, max_trials=60, stop_at_first=False)
    assert any(pick.mode == "weight_only" for trial in trials for pick in trial.config.values())


def test_basic_tries_each_mode_once_for_each_kind() -> None:
    plain, rich = (SimulatedModel(ops=10, modes=modes) for modes in ({}, {"dynamic": 0.3, "weight_only": 0.8}))
    kinds = len({op.kind for op in rich.space.ops if op.kind in WITH_WEIGHTS})
    basic = make_strategy("basic")
    assert basic.worst_case(rich.space) == basic.worst_case(plain.space) + 2 * kinds  # type: ignore[operator]


def test_choices_behind_fp32_pay_nothing_and_are_no_variants() -> None:
    space = TuningSpace(
        [Op("one", "Conv", ("one",), (STATIC, FLOAT, WEIGHTS)), Op("two", "Gemm", ("two",), (STATIC, FLOAT))]
    )
    assert on_offer(space)
    assert len(families(space)) == 2
    assert list(variants(space.default_config(), space)) == []


def test_what_ops_take_is_told_by_the_whole_model_in_the_same_families() -> None:
    choices = (STATIC, OpConfig(INT8, "entropy"), DYNAMIC, FLOAT)
    space = TuningSpace([Op(name, "Gemm", (name,), choices) for name in ("one", "two", "three")])
    mixed = QuantConfig({"one": OpConfig(INT8, "entropy"), "two": DYNAMIC, "three": FLOAT})
    assert dict(quantize_all(mixed, space)) == {"one": STATIC, "two": DYNAMIC, "three": STATIC}


def test_the_strategies_that_know_modes_keep_the_contract() -> None:
    check_strategy(make_strategy("mse"))
