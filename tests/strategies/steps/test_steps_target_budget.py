"""The most accurate model within a budget: what strategies try, and what they leave alone."""

from __future__ import annotations

import pytest

from quaver import Criterion
from quaver.strategies import make_strategy
from quaver.strategies.bayesian import value
from quaver.strategies.steps.target_budget import recalibrated, within_budget
from quaver.target_budget import TargetBudget
from quaver.testing import SimulatedModel, drive
from quaver.trial import Trial, TrialState

CEILINGS = [TargetBudget(latency=0.5), TargetBudget(size=0.45), TargetBudget(0.6, 0.5)]
MODEL = SimulatedModel(ops=30, culprits=4, seed=1)
# Another mode, and the part of the fp32 time that it takes.
MILDER = {"weight_only": 0.5}
LEAST = {"auto": 0.003, "mse": 0.003, "mse_v2": 0.003, "bayesian": 0.003, "basic": 0.14, "random": 0.2}


def tried(strategy: str, target_budget: TargetBudget, model: SimulatedModel = MODEL, trials: int = 60) -> list[Trial]:
    return drive(strategy, model, Criterion.within(target_budget), trials, objective="accuracy")


@pytest.mark.parametrize("target_budget", CEILINGS, ids=str)
@pytest.mark.parametrize("strategy", LEAST)
def test_every_strategy_finds_a_more_accurate_model_within_the_budget(
    strategy: str, target_budget: TargetBudget
) -> None:
    trials = tried(strategy, target_budget)
    default_loss = MODEL.baseline - MODEL.score(MODEL.space.default_config())
    best = min((trial for trial in trials if trial.met), key=lambda trial: trial.loss or 0.0)
    assert best.loss is not None and best.loss <= LEAST[strategy] < default_loss / MODEL.baseline


@pytest.mark.parametrize("target_budget", CEILINGS, ids=str)
def test_auto_evaluates_nothing_beyond_the_budget_and_no_more_than_eight(target_budget: TargetBudget) -> None:
    trials = tried("auto", target_budget)
    assert len(trials) <= 8 and all(trial.met for trial in trials)


@pytest.mark.parametrize("target_budget", CEILINGS, ids=str)
def test_auto_uses_the_budget_up(target_budget: TargetBudget) -> None:
    first = tried("auto", target_budget)[0]
    spare = min(time.fp32 - time.int8 for time in MODEL.seconds.values()) / sum(t.fp32 for t in MODEL.seconds.values())
    taken = target_budget.excess(first, 1_000_000)
    assert taken > 0.9 and (target_budget.latency is None or taken <= 1 < taken + 3 * spare + 0.1)


def test_auto_ends_where_nothing_is_lost() -> None:
    class Free(SimulatedModel):
        def score(self, config: object) -> float:
            return self.baseline

    assert (
        len(drive("auto", Free(ops=9), Criterion.within(TargetBudget(0.6)), objective="accuracy", stop_at_first=False))
        == 1
    )


def test_auto_tries_the_fastest_there_is_when_nothing_keeps_the_budget() -> None:
    model = SimulatedModel(ops=30, culprits=4, seed=1, repairs={"bias_correction": 0.1})
    trials = tried("auto", TargetBudget(latency=0.05), model)
    assert trials and not any(trial.met for trial in trials)
    assert any(pick.repairs for pick in trials[0].config.values())


@pytest.mark.parametrize("strategy", ["mse", "mse_v2"])
def test_fallbacks_end_where_the_budget_is_used_up(strategy: str) -> None:
    trials = tried(strategy, TargetBudget(latency=0.5))
    assert [trial.met for trial in trials] == [True] * (len(trials) - 1) + [False]


def test_conservative_adds_int8_until_the_budget_is_kept_and_no_more() -> None:
    trials = tried("conservative", TargetBudget(latency=0.6))
    met = [trial for trial in trials if trial.met]
    assert 1 <= len(met) <= 2 and trials[-1].met
    assert len(met[-1].config.fp32_ops) >= len(met[0].config.fp32_ops)


def test_several_workers_are_given_several_at_once() -> None:
    trials = drive("auto", MODEL, Criterion.within(TargetBudget(0.5)), objective="accuracy", width=4)
    assert len(trials) <= 8 and all(trial.met for trial in trials)


def test_bayesian_looks_for_fewer_fp32_ops_until_the_budget_is_kept_and_for_accuracy_then() -> None:
    config = MODEL.space.default_config()
    half = config.fallback(*list(config)[:15])
    over = Trial(1, half, TrialState.COMPLETE, 0.8, 0.0)
    worse = Trial(2, config, TrialState.COMPLETE, 0.7, 0.2, met=True)
    better = Trial(3, config, TrialState.COMPLETE, 0.75, 0.1, met=True)
    assert value(better, True) < value(worse, True) < value(over, True)


def test_the_mixtures_are_ordered_by_their_error_at_the_outputs() -> None:
    space, probe = MODEL.space, MODEL.probe
    found = within_budget(space.default_config(), space, probe, TargetBudget(0.5))
    errors = probe.output_errors(found)
    assert errors == sorted(errors) and errors[0] < 0.1 * probe.output_error(space.default_config())
    assert all(probe.speed(config) <= 0.5 for config in found)


def least_loss(trials: list[Trial]) -> float:
    return min(trial.loss for trial in trials if trial.met and trial.loss is not None)


@pytest.mark.parametrize("target_budget", [TargetBudget(latency=0.45), TargetBudget(size=0.4)], ids=str)
def test_auto_runs_culprits_in_a_milder_mode_where_fp32_would_exceed_the_budget(target_budget: TargetBudget) -> None:
    shape = {"ops": 30, "culprits": 12, "seed": 3}
    plain, rich = (SimulatedModel(**shape, modes=modes, relief={"weight_only": 0.01}) for modes in ({}, MILDER))  # type: ignore[arg-type]
    before, after = (tried("auto", target_budget, model) for model in (plain, rich))
    assert least_loss(after) < least_loss(before)
    assert all(trial.met for trial in after) and len(after) <= 8
    best = min((trial for trial in after if trial.met), key=lambda trial: trial.loss or 0.0)
    assert "weight_only" in {best.config[name].mode for name in rich.guilty}


def test_a_mode_that_takes_as_long_as_fp32_is_left_alone_where_time_is_limited() -> None:
    model = SimulatedModel(ops=30, culprits=4, seed=1, modes={"weight_only": 1.1}, relief={"weight_only": 0.01})
    modes = {pick.mode for trial in tried("auto", TargetBudget(latency=0.5), model) for pick in trial.config.values()}
    assert "weight_only" not in modes
    modes = {pick.mode for trial in tried("auto", TargetBudget(size=0.3), model) for pick in trial.config.values()}
    assert "weight_only" in modes


def test_auto_repairs_within_a_budget_unless_it_is_told_not_to() -> None:
    model = SimulatedModel(ops=30, culprits=12, seed=3, repairs={"bias_correction": 0.1})
    found = [
        drive(make_strategy("auto", options), model, Criterion.within(TargetBudget(0.45)), 60, objective="accuracy")
        for options in ({"repairs": False}, {})
    ]
    without, repaired = (any(pick.repairs for pick in trials[0].config.values()) for trials in found)
    assert repaired and not without
    assert least_loss(found[1]) < least_loss(found[0])


def test_other_calibrations_of_a_repaired_configuration_keep_its_repairs() -> None:
    model = SimulatedModel(ops=12, culprits=2, repairs={"bias_correction": 0.1}, relief={"entropy": 0.2})
    config = model.space.repair(model.space.default_config(), "bias_correction")
    best, *others = recalibrated(config, model.space, model.probe)
    assert {pick.repairs for pick in best.values()} == {pick.repairs for pick in config.values()}
    assert others and model.probe.output_error(best) < model.probe.output_error(config)
