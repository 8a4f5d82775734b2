"""Where size counts, weights have as few bits as the criterion bears; the rest goes back to eight, and not to fp32."""

from __future__ import annotations

import pytest

from quaver.ops import FLOAT, INT4, INT8, PER_BLOCK, OpConfig, QuantConfig
from quaver.space import TuningSpace
from quaver.strategies import make_strategy
from quaver.strategies.prepared import prepared
from quaver.strategies.steps.weight_bits import Narrowing
from quaver.testing import SimulatedModel, drive
from quaver.testing.simulated import WITH_WEIGHTS

FOUR_BITS = OpConfig(INT4, granularity=PER_BLOCK, mode="weight_only")
WEIGHTS = OpConfig(INT8, mode="weight_only")
# Eight bits do next to nothing to a culprit, four do.
MILD = {"weight_only": 0.01, "minmax": 0.01, PER_BLOCK: 50.0}


def small(**shape: object) -> SimulatedModel:
    """A model whose ops all have weights, so that four bits save much."""
    given = {"ops": 24, "modes": {"weight_only": 0.8}, "relief": MILD, "four_bits": True, **shape}
    model = SimulatedModel(**given)  # type: ignore[arg-type]
    weighty = [op.name for op in model.space.ops if op.kind in WITH_WEIGHTS]
    return SimulatedModel(**{**given, "culprits": weighty[: int(str(given.get("culprits", 3)))]})  # type: ignore[arg-type]


def size(model: SimulatedModel, config: QuantConfig) -> float:
    return model.probe.size(config)


def test_the_first_trial_has_the_fewest_bits_and_is_the_last_if_it_is_good_enough() -> None:
    model = small(culprits=0)
    trials = drive("auto", model, objective="size")
    assert len(trials) == 1 and trials[0].met
    assert all(trials[0].config[op.name] == FOUR_BITS for op in model.space.ops if op.kind in WITH_WEIGHTS)


def test_culprits_go_back_to_eight_bits_and_nothing_to_fp32() -> None:
    model = small()
    *_, last = drive("auto", model, objective="size")
    assert last.met and last.number <= 4
    assert {last.config[name] for name in model.guilty} == {WEIGHTS}
    assert not last.config.fp32_ops
    assert size(model, last.config) < 0.9 * size(model, model.space.default_config())


def test_with_time_left_ops_return_to_four_bits() -> None:
    model = small()
    trials = drive("auto", model, objective="size", stop_at_first=False)
    least = min((trial for trial in trials if trial.met), key=lambda trial: trial.model_size)
    weighty = {op.name for op in model.space.ops if op.kind in WITH_WEIGHTS}
    assert {name for name in weighty if least.config[name] != FOUR_BITS} == set(model.guilty)


def test_where_four_bits_never_do_the_search_goes_on_as_without_them() -> None:
    model = small(relief={**MILD, PER_BLOCK: 1e7}, culprits=16)
    plain = small(relief={**MILD, PER_BLOCK: 1e7}, culprits=16, four_bits=False)
    found, expected = (drive("auto", one, objective="size")[-1] for one in (model, plain))
    assert found.met and found.config == expected.config
    assert found.number <= expected.number + 4


def test_what_saves_little_is_worth_no_trial_of_its_own() -> None:
    model = SimulatedModel(ops=24, four_bits=True, culprits=0, relief={PER_BLOCK: 500.0}, rules=_all_but_one())
    trials = drive("auto", model, objective="size")
    assert len(trials) == 1 and trials[0].met
    assert INT4 not in {pick.precision for pick in trials[0].config.values()}
    free = SimulatedModel(ops=24, four_bits=True, culprits=0, relief={"weight_only": 0.01}, rules=_all_but_one())
    (only,) = drive("auto", free, objective="size")
    assert [pick.precision for pick in only.config.values()].count(INT4) == 1  # it costs nothing


def _all_but_one() -> dict[str, str]:
    ops = SimulatedModel(ops=24, four_bits=True).space.ops
    first = next(op.name for op in ops if op.kind in WITH_WEIGHTS)
    return {op.name: "int8" for op in ops if op.name != first}


@pytest.mark.parametrize("objective", ["latency", "int8_ops"])
def test_where_size_does_not_count_nothing_has_four_bits(objective: str) -> None:
    model = small(culprits=0)
    trials = drive("auto", model, objective=objective, stop_at_first=False)
    assert all(pick.precision != INT4 for trial in trials[:1] for pick in trial.config.values())


def test_points_grow_and_do_less_harm() -> None:
    model = small()
    narrowing = Narrowing(model.space.default_config(), model.space, model.probe)
    sizes = [size(model, point) for point in narrowing.points]
    errors = list(narrowing.points.values())
    assert sizes == sorted(sizes) and errors == sorted(errors, reverse=True)
    assert narrowing.order[: len(model.guilty)] == sorted(model.guilty, key=lambda name: -model.sensitivity[name])


def test_ops_that_may_not_run_in_fp32_go_back_too() -> None:
    rules = {"op.*": ["int8", "int4"]}
    model = small(rules=rules)
    *_, last = drive("auto", model, objective="size")
    assert last.met
    assert {last.config[name] for name in model.guilty} == {WEIGHTS}


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("name", ["auto", "basic", "bayesian", "conservative", "exhaustive", "mse", "mse_v2", "random"])
def test_every_strategy_keeps_its_promises_with_four_bits(name: str, width: int) -> None:
    model = small(ops=6, culprits=2)
    trials = drive(name, model, max_trials=300, objective="size", width=width)
    worst = prepared(make_strategy(name), seed=0, objective="size", width=width).worst_case(model.space)
    assert worst is None or len(trials) <= worst
    assert all(model.space.allows(trial.config) for trial in trials)


def test_basic_begins_with_the_fewest_bits_then_those_of_one_type() -> None:
    model = small(relief={**MILD, PER_BLOCK: 1e7}, culprits=16)
    trials = drive("basic", model, objective="size")
    narrow = [{op.kind for op in model.space.ops if trial.config[op.name] == FOUR_BITS} for trial in trials]
    kinds = [kind for kind in model.space.kinds if kind in WITH_WEIGHTS]
    count = len(kinds)
    assert narrow[: count + 1] == [set(kinds), *({kind} for kind in kinds)]
    assert trials[count + 1].config == model.space.default_config()


def test_an_op_without_a_choice_of_fewer_bits_is_left_alone() -> None:
    model = SimulatedModel(ops=4)
    narrowing = Narrowing(model.space.default_config(), model.space, model.probe)
    assert narrowing.smallest == narrowing.start == narrowing.next_best
    bare = TuningSpace(op for op in model.space.ops if FLOAT in op.choices)
    assert len(drive("auto", model, objective="size")) >= 1 and len(bare) == 4
