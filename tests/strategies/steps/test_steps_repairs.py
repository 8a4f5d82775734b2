"""Repairs before fallback: which are done, on whom, and when they come first."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest

from quaver.ops import FLOAT, INT8, Op, OpConfig, QuantConfig
from quaver.repairs import name_of
from quaver.space import TuningSpace
from quaver.strategies import make_strategy
from quaver.strategies.steps.repairs import best_repairs, carry_over
from quaver.testing import SimulatedModel, drive

PICK = OpConfig(INT8)
PERCENTILE = OpConfig(INT8, "percentile")
STRENGTHS = ("smoothing:0.5", "smoothing:0.7")
SPACE = TuningSpace(
    [
        Op("q", "MatMul", ("q",), (PICK, PERCENTILE, FLOAT), ("bias_correction", *STRENGTHS), "norm"),
        Op("k", "MatMul", ("k",), (PICK, PERCENTILE, FLOAT), ("bias_correction", *STRENGTHS), "norm"),
        Op("fc", "MatMul", ("fc",), (PICK, PERCENTILE, FLOAT), ("bias_correction", *STRENGTHS), "gelu"),
        Op("sum", "Add", ("sum",), (PICK, FLOAT)),
    ]
)
PLAIN = SPACE.default_config()


class Errors:
    """A probe of ops whose errors add up, each cut by repairs as `cuts` says: (op, repair) -> factor."""

    def __init__(
        self, errors: Mapping[str, float], cuts: Mapping[tuple[str, str], float], seconds: float = 0.0
    ) -> None:
        self.errors, self.cuts, self.seconds = errors, cuts, seconds
        self.asked = 0

    def local_error(self, config: QuantConfig) -> dict[str, float]:
        self.asked += 1
        return {name: self._error(name, config[name]) for name in config.quantized_ops}

    def output_errors(self, configs: list[QuantConfig]) -> list[float]:
        self.asked += len(configs)
        return [sum(self._error(name, config[name]) for name in config.quantized_ops) for config in configs]

    def speeds(self, configs: list[QuantConfig]) -> list[float]:
        return [1 + self.seconds * any("smoothing" in str(pick) for pick in config.values()) for config in configs]

    def _error(self, name: str, pick: OpConfig) -> float:
        return self.errors[name] * math.prod(self.cuts.get((name, spelled), 1.0) for spelled in pick.repairs)


def repairs(config: QuantConfig) -> dict[str, tuple[str, ...]]:
    return {name: pick.repairs for name, pick in config.items() if pick.repairs}


EVEN = dict.fromkeys(("q", "k", "fc", "sum"), 1.0)


def test_ops_that_read_the_same_get_the_strength_that_is_best_for_them_together() -> None:
    cuts = {("q", STRENGTHS[0]): 0.2, ("k", STRENGTHS[0]): 0.3, ("q", STRENGTHS[1]): 0.1, ("k", STRENGTHS[1]): 0.6}
    (found,) = best_repairs(PLAIN, SPACE, Errors(EVEN, cuts), timed=True)
    assert repairs(found) == {"q": (STRENGTHS[0],), "k": (STRENGTHS[0],)}


def test_what_hardly_helps_is_left_alone() -> None:
    assert best_repairs(PLAIN, SPACE, Errors(EVEN, {("fc", STRENGTHS[0]): 0.6}), timed=True) == [PLAIN]
    assert best_repairs(PLAIN, SPACE, Errors(EVEN, {}), timed=True) == [PLAIN]


def test_of_repairs_that_may_take_time_those_are_done_that_bring_most_of_it() -> None:
    cuts = {(name, STRENGTHS[1]): 0.1 for name in ("q", "k", "fc")}
    (found,) = best_repairs(PLAIN, SPACE, Errors(EVEN | {"fc": 0.01}, cuts), timed=True)
    assert set(repairs(found)) == {"q", "k"}


def test_what_takes_no_time_is_done_to_all_ops_if_the_outputs_gain_by_it() -> None:
    (found,) = best_repairs(PLAIN, SPACE, Errors(EVEN, {("fc", "bias_correction"): 0.1}), timed=True)
    assert repairs(found) == dict.fromkeys(("q", "k", "fc"), ("bias_correction",))
    assert best_repairs(PLAIN, SPACE, Errors(EVEN, {("fc", "bias_correction"): 2.0}), timed=True) == [PLAIN]


def test_what_takes_time_comes_second_if_time_counts() -> None:
    cuts = {("fc", STRENGTHS[0]): 0.1}
    slow = Errors(EVEN, cuts, seconds=0.1)
    assert [repairs(one) for one in best_repairs(PLAIN, SPACE, slow, timed=True)] == [{}, {"fc": (STRENGTHS[0],)}]
    assert len(best_repairs(PLAIN, SPACE, slow, timed=False)) == 1
    assert len(best_repairs(PLAIN, SPACE, Errors(EVEN, cuts, seconds=0.01), timed=True)) == 1


def test_ops_in_fp32_are_not_repaired_and_nothing_is_measured_where_nothing_can_be() -> None:
    probe = Errors(EVEN, {("fc", STRENGTHS[0]): 0.1})
    assert best_repairs(PLAIN.fallback("fc"), SPACE, probe, timed=True) == [PLAIN.fallback("fc")]
    silent = Errors(EVEN, {})
    assert best_repairs(PLAIN.fallback("q", "k", "fc"), SPACE, silent, timed=True) and not silent.asked


def test_repairs_are_carried_over_to_another_calibration() -> None:
    repaired = SPACE.repair(PLAIN, "bias_correction").fallback("q")
    other = SPACE.default_config(calibration="percentile").fallback("k")
    found = carry_over(repaired, other, SPACE)
    assert repairs(found) == {"fc": ("bias_correction",)} and found["fc"].calibration == "percentile"
    assert found["q"] == other["q"] and found["k"] == FLOAT


@pytest.mark.parametrize("objective", ["latency", "size"])
def test_auto_repairs_what_else_would_fall_back(objective: str) -> None:
    model = SimulatedModel(ops=40, culprits=3, damage=0.05, repairs={"bias_correction": 0.01}, seed=4)
    culprits = [name for name in model.guilty if model.space[name].repairs]
    assert culprits
    met = {}
    for option in (True, False):
        strategy = make_strategy("auto", options={"repairs": option})
        met[option] = next(trial for trial in drive(strategy, model, objective=objective) if trial.met)
    assert len(met[True].config.fp32_ops) < len(met[False].config.fp32_ops) and met[True].number <= met[False].number
    assert {name_of(one) for pick in met[True].config.values() for one in pick.repairs} == {"bias_correction"}


@pytest.mark.parametrize("name", ["basic", "bayesian", "random"])
def test_other_strategies_have_repairs_in_their_space(name: str) -> None:
    model = SimulatedModel(ops=8, culprits=2, repairs={"bias_correction": 0.01, "smoothing:0.5": 0.5}, seed=1)
    trials = drive(name, model, max_trials=40, stop_at_first=False)
    assert {one for trial in trials for pick in trial.config.values() for one in pick.repairs} == {*model.repairs}


def test_all_in_one_way_is_tried_too_for_what_ops_in_a_row_gain_together() -> None:
    """No op by itself gains half, and the outputs gain clearly."""
    cuts = {(name, STRENGTHS[1]): 0.7 for name in ("q", "k", "fc")}
    (found,) = best_repairs(PLAIN, SPACE, Errors(EVEN, cuts), timed=True)
    assert repairs(found) == dict.fromkeys(("q", "k", "fc"), (STRENGTHS[1],))


def test_all_in_one_way_is_left_if_it_takes_time() -> None:
    cuts = {(name, STRENGTHS[1]): 0.7 for name in ("q", "k", "fc")}
    assert best_repairs(PLAIN, SPACE, Errors(EVEN, cuts, seconds=0.1), timed=True) == [PLAIN]


def test_equalisation_is_for_weights_with_one_scale() -> None:
    single = OpConfig(INT8, granularity="per_tensor")
    ops = [Op(name, "Conv", (name,), (PICK, single, FLOAT), ("equalisation", "bias_correction")) for name in "ab"]
    space = TuningSpace(ops)
    errors = Errors(dict.fromkeys("ab", 1.0), {(name, "equalisation"): 0.5 for name in "ab"})
    assert best_repairs(space.default_config(), space, errors, timed=True) == [space.default_config()]
    mixed = space.default_config().replace({"b": single})
    (found,) = best_repairs(mixed, space, errors, timed=True)
    assert repairs(found) == {"b": ("equalisation",)}
