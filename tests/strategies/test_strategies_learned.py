"""Strategies that learn from scores: what their models add, and what they share."""

from __future__ import annotations

import builtins
from typing import Any

import pytest

from quaver import QuantConfig
from quaver.errors import MissingPackageError
from quaver.strategies import Bayesian, Tpe
from quaver.strategies.steps.encoding import EncodedSpace
from quaver.testing import SimulatedModel, drive
from quaver.trial import Trial

# A weak and a useless ranking, in which a walk along the ranking falls back most ops.
CASES = [
    SimulatedModel(ops=50, culprits=culprits, damage=0.03, ranking=ranking, seed=seed)
    for culprits, ranking, seed in ((3, "weak", 0), (6, "useless", 0), (6, "useless", 1))
]


def fewest_fp32_ops(trials: list[Trial]) -> int:
    """Return the number of fp32 ops in the best model; all ops if none meets the criterion."""
    return min((len(trial.config.fp32_ops) for trial in trials if trial.met), default=50)


def test_without_its_warm_start_the_model_of_bayesian_beats_random_points_of_the_same_space() -> None:
    learned, random = (
        [
            fewest_fp32_ops(drive(strategy, model, max_trials=25, stop_at_first=False, seed=model.seed))
            for model in CASES
        ]
        for strategy in (Bayesian(warm_start=False), Bayesian(warm_start=False, random_points=25))
    )
    assert sum(learned) < sum(random)
    assert max(learned) < 50


def test_a_point_stands_for_a_prefix_of_the_ranking_with_exceptions() -> None:
    model = SimulatedModel(ops=40, culprits=2)
    encoded = EncodedSpace(model.space, model.probe.ranking())
    lengths = [len(encoded.config(point).fp32_ops) for point in encoded.along_ranking()]
    assert lengths == [0, 1, 2, 4, 8, 16, 32]
    point = encoded.along_ranking()[3]
    point[-len(encoded.groups) + 1] = 1
    down = set(encoded.ranking[:4]) - {encoded.ranking[1]}
    assert set(encoded.config(point).fp32_ops) == down


@pytest.mark.parametrize("width", [1, 4])
def test_tpe_is_deterministic_and_proposes_nothing_twice(width: int) -> None:
    runs = [
        [trial.config for trial in drive("tpe", CASES[0], max_trials=20, stop_at_first=False, seed=3, width=width)]
        for _ in range(2)
    ]
    assert runs[0] == runs[1]
    assert len(set(runs[0])) == 20


def test_tpe_finds_the_culprits() -> None:
    trials = drive("tpe", SimulatedModel(ops=30, culprits=2), max_trials=40)
    assert trials[-1].met


def test_tpe_ends_when_it_finds_nothing_new() -> None:
    rules = {
        "op.*": {"activation": {"algorithm": ["minmax"], "scheme": ["asym"]}, "weight": {"granularity": ["per_tensor"]}}
    }
    trials = drive("tpe", SimulatedModel(ops=2, rules=rules), max_trials=200, stop_at_first=False)
    assert 1 < len(trials) < 20


def test_without_optuna_tpe_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import_module = builtins.__import__

    def without_optuna(name: str, *args: Any, **keywords: Any) -> Any:
        if name == "optuna":
            raise ImportError("No module named 'optuna'", name="optuna")
        return import_module(name, *args, **keywords)

    monkeypatch.setattr(builtins, "__import__", without_optuna)
    with pytest.raises(MissingPackageError, match=r"pip install 'quaver\[optuna\]'"):
        next(Tpe().propose(CASES[0].space, CASES[0].probe))


@pytest.mark.parametrize("name", ["random", "exhaustive"])
def test_without_fallback_no_op_moves_to_fp32(name: str) -> None:
    from quaver.strategies import make_strategy

    model = SimulatedModel(ops=3, reluctant=1)
    default = model.space.default_config()

    def moved(config: QuantConfig) -> set[str]:
        return set(config.fp32_ops) - set(default.fp32_ops)

    found = {}
    for fallback in (True, False):
        strategy = make_strategy(name, {"fallback": fallback})
        trials = drive(strategy, model, max_trials=60, stop_at_first=False)
        found[fallback] = any(moved(trial.config) for trial in trials)
        assert len(trials) > 10
    assert found == {True: True, False: False}


def test_exhaustive_counts_its_configurations() -> None:
    from quaver.strategies import make_strategy

    rules = {"op.*": {"activation": {"algorithm": ["minmax"], "scheme": ["asym"]}}}
    model = SimulatedModel(ops=2, rules=rules)
    for fallback, count in ((True, 9), (False, 4)):
        strategy = make_strategy("exhaustive", {"fallback": fallback})
        assert strategy.worst_case(model.space) == count
        assert len(drive(strategy, model, stop_at_first=False)) == count
