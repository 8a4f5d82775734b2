"""A simulated model is what it says: culprits, pairs, noise, rankings and times, all of them from the seed."""

from __future__ import annotations

import statistics

import pytest

from quaver import FP32, INT8, Criterion, Probe
from quaver.ops import FLOAT
from quaver.testing import SimulatedModel


def met(model: SimulatedModel, *fallen: str) -> bool:
    return Criterion().met(model.baseline, model.score(model.space.default_config().fallback(*fallen)))


def test_it_has_so_many_ops_with_choices_like_those_of_onnx_runtime() -> None:
    space = SimulatedModel(ops=30).space
    assert [op.name for op in space.ops[:2]] == ["op000", "op001"]
    assert len(space) == len(space.tunable) == 30
    assert set(space.kinds) == {"Conv", "MatMul", "Add"}
    assert {len(op.choices) for op in space.ops if op.kind != "Add"} == {13}
    assert all(op.choices[0].precision is INT8 and op.choices[-1] == FLOAT for op in space.ops)


def test_all_int8_fails_until_every_culprit_falls_back() -> None:
    model = SimulatedModel(ops=20, culprits=3)
    assert len(model.guilty) == 3
    assert not met(model)
    assert not met(model, *model.guilty[1:])
    assert met(model, *model.guilty)


def test_of_a_pair_one_alone_helps_nothing() -> None:
    model = SimulatedModel(ops=20, culprits=1, pairs=1)
    one, other = model.guilty
    assert model.score(model.space.default_config().fallback(one)) == pytest.approx(
        model.score(model.space.default_config()), abs=0.001
    )
    assert not met(model, one)
    assert not met(model, other)
    assert met(model, one, other)


def test_culprits_can_be_named() -> None:
    assert SimulatedModel(ops=5, culprits=["op003"]).guilty == ("op003",)


def test_noise_belongs_to_the_configuration() -> None:
    noisy = SimulatedModel(ops=20, culprits=0, noise=0.01)
    configs = [noisy.space.default_config().fallback(name) for name in noisy.space.tunable]
    scores = [noisy.score(config) for config in configs]
    assert scores == [noisy.score(config) for config in configs]
    assert 0.005 < statistics.stdev(scores) < 0.02


def test_the_seed_decides_where_the_culprits_are() -> None:
    assert SimulatedModel(ops=50, seed=1).guilty == SimulatedModel(ops=50, seed=1).guilty
    assert len({SimulatedModel(ops=50, seed=seed).guilty for seed in range(10)}) > 5


def ranks(model: SimulatedModel) -> list[int]:
    ranking = model.probe.ranking()
    return sorted(ranking.index(name) for name in model.guilty)


def test_a_right_ranking_begins_with_the_culprits() -> None:
    assert all(ranks(SimulatedModel(ops=50, culprits=3, pairs=1, seed=seed)) == [0, 1, 2, 3] for seed in range(10))


def test_a_weak_ranking_has_them_in_front_and_a_useless_one_anywhere() -> None:
    def mean_rank(ranking: str) -> float:
        return statistics.fmean(
            rank for seed in range(40) for rank in ranks(SimulatedModel(100, 3, ranking=ranking, seed=seed))
        )

    assert 3 < mean_rank("weak") < 25
    assert 35 < mean_rank("useless") < 65


def test_the_figures_of_a_useless_ranking_are_as_sharp_as_those_of_a_right_one() -> None:
    right, useless = (SimulatedModel(50, 3, ranking=ranking).probe.sensitivity() for ranking in ("right", "useless"))
    assert sorted(right.values()) == sorted(useless.values())


def test_the_probe_answers_everything_for_the_ops_it_should() -> None:
    model = SimulatedModel(ops=12, culprits=2, reluctant=2, slow=3, rules={"op000": "fp32", "op001": "int8"})
    space, probe = model.space, model.probe
    assert isinstance(probe, Probe)
    config = space.default_config()
    assert set(probe.sensitivity()) == {f"op{index:03}" for index in range(2, 12)}
    assert set(probe.sensitivity(config.fallback("op005"))) == set(probe.sensitivity()) - {"op005"}
    assert set(probe.mse()) == set(probe.latency()) == set(space.quantizable)
    assert set(probe.local_error()) == set(config.int8_ops)
    assert probe.output_error(space.configure(lambda op: FLOAT)) < probe.output_error(config)
    assert sum(time.saved < 0 for time in probe.latency().values()) in (2, 3)
    assert probe.speed(config) < probe.speed(config.fallback("op002", "op003", "op004", "op005", "op006"))
    seen = probe.inspect(config, ["op002", "op000"])
    assert (seen["op002"].fp32[0] != seen["op002"].quantized[0]).all()
    assert (seen["op000"].fp32[0] == seen["op000"].quantized[0]).all()


def test_another_calibration_can_bring_relief() -> None:
    model = SimulatedModel(ops=20, culprits=3, relief={"percentile": 0.01})
    cured = model.space.default_config(calibration="percentile")
    assert Criterion().met(model.baseline, model.score(cured))
    assert model.probe.output_error(cured) < 0.1 * model.probe.output_error(model.space.default_config())


def test_ops_that_gain_nothing_are_fp32_by_default() -> None:
    model = SimulatedModel(ops=3, reluctant=1)
    assert model.space.default_config()["op003"].precision is FP32


def test_impossible_models_are_refused() -> None:
    with pytest.raises(ValueError, match="ranking must be one of right, weak, useless, not 'perfect'"):
        SimulatedModel(ranking="perfect")
    with pytest.raises(ValueError, match="4 culprits do not fit into 3 ops"):
        SimulatedModel(ops=3, culprits=["a", "b", "c", "d"])
