"""What strategies do with several workers."""

from __future__ import annotations

import pytest

from quaver.testing import SimulatedModel, drive

MODEL = SimulatedModel(ops=24, culprits=3, damage=0.02, ranking="weak")


@pytest.mark.parametrize("strategy", ["basic", "random"])
def test_trials_that_depend_on_no_result_are_the_same_at_any_width(strategy: str) -> None:
    runs = [
        [trial.config for trial in drive(strategy, MODEL, max_trials=40, stop_at_first=False, width=width)]
        for width in (1, 2, 8)
    ]
    assert runs[0] == runs[1] == runs[2]


def test_conservative_comes_to_the_same_end_by_more_evaluations() -> None:
    runs = [drive("conservative", MODEL, stop_at_first=False, width=width) for width in (1, 4)]
    best = [max((trial for trial in run if trial.met), key=lambda trial: len(trial.config.int8_ops)) for run in runs]
    assert best[0].config == best[1].config and len(runs[1]) >= len(runs[0])


@pytest.mark.parametrize("width", [2, 3, 8, 100])
@pytest.mark.parametrize("ranking", ["right", "weak", "useless"])
def test_auto_finds_a_success_with_any_number_of_workers(width: int, ranking: str) -> None:
    model = SimulatedModel(ops=60, culprits=4, damage=0.02, ranking=ranking)
    trials = drive("auto", model, objective="size", width=width)
    assert trials[-1].met


def test_bayesian_proposes_as_many_at_once_as_there_are_workers() -> None:
    trials = drive("bayesian", MODEL, max_trials=12, stop_at_first=False, width=4)
    assert len({trial.config for trial in trials}) == 12
