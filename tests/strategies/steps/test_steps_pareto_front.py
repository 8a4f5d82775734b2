"""The Pareto front of latency and error, and the search along it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest

from quaver.ops import QuantConfig
from quaver.strategies.steps.pareto_front import fallbacks, first_success, make_front
from quaver.testing import SimulatedModel
from quaver.time_model import Edge, TimeModel
from quaver.trial import Trial, TrialState

ALLOWED = 0.01


def judged(model: SimulatedModel, config: QuantConfig, number: int) -> Trial:
    loss = 1 - model.score(config) / model.baseline
    return Trial(number, config, TrialState.COMPLETE, model.score(config), loss, loss <= ALLOWED)


def search(model: SimulatedModel) -> list[Trial]:
    start = model.space.default_config()
    trials = [judged(model, start, 1)]
    times = fallbacks(start, model.probe.sensitivity(start), model.probe.time_model(start))
    steps = first_success(trials[0], times, ALLOWED, model.probe)
    try:
        asked = next(steps)
        while True:
            trials.append(judged(model, asked, len(trials) + 1))
            asked = steps.send(trials[-1])
    except StopIteration:
        return trials[1:]


@pytest.mark.parametrize("seed", range(5))
def test_along_the_front_models_take_longer_and_do_less_harm(seed: int) -> None:
    model = SimulatedModel(ops=40, culprits=5, seed=seed)
    start = model.space.default_config()
    points = make_front(start, model.space.tunable, model.probe.time_model(start), model.probe.sensitivity(start))
    assert len(points) > 3
    assert points[0].config == start
    for before, after in itertools.pairwise(points):
        assert after.seconds > before.seconds and after.sensitivity < before.sensitivity


@pytest.mark.parametrize("seed", range(5))
def test_a_right_ranking_takes_one_trial_and_sends_only_culprits_back(seed: int) -> None:
    model = SimulatedModel(ops=60, culprits=4, seed=seed)
    (trial,) = search(model)
    assert trial.met
    assert set(trial.config.fp32_ops) == set(model.guilty)


def test_it_gives_up_after_a_few_trials_where_the_error_tells_nothing() -> None:
    trials = search(SimulatedModel(ops=60, culprits=6, ranking="useless", seed=3))
    assert len(trials) <= 5


def test_what_is_slower_than_fp32_is_not_tried() -> None:
    class Slow(SimulatedModel):
        """Whatever runs in int8 takes longer."""

        @property
        def seconds(self):  # type: ignore[no-untyped-def,override]
            return {name: time._replace(int8=2 * time.fp32) for name, time in super().seconds.items()}

    assert search(Slow(ops=20, culprits=3)) == []


def test_an_op_that_saves_next_to_nothing_among_fp32_ops_goes_with_its_neighbours() -> None:
    model = SimulatedModel(ops=3, culprits=0)
    names = list(model.space.tunable)
    start = model.space.default_config()
    edges = (Edge(names[0], (names[1],), 200_000), Edge(names[1], (names[2],), 200_000))
    times = TimeModel(dict.fromkeys(names, 1e-4), dict(zip(names, (5e-4, 0.99e-4, 5e-4), strict=True)), 0.0, edges)
    points = make_front(start, names, times, dict.fromkeys(names, 1e-6))
    assert points == [] or names[1] not in points[0].config.quantized_ops


class Known:
    """The part of a probe that the search asks: errors and times of configurations, as they are given."""

    def __init__(self, figures: dict[QuantConfig, tuple[float, float]]) -> None:
        self.figures = figures

    def output_errors(self, configs: Sequence[QuantConfig]) -> list[float]:
        return [self.figures[config][0] for config in configs]

    def speed(self, config: QuantConfig) -> float:
        return self.figures[config][1]


def tried(losses: list[float], *figures: tuple[float, float]) -> list[int]:
    """Which of these (error, time) are tried, the first of them being the trial that failed, if trials lose so much."""
    names = SimulatedModel(ops=len(figures) + 1).space
    start = names.default_config()
    configs = [start.fallback(*list(names.tunable)[:count]) for count in range(len(figures))]
    probe: Any = Known(dict(zip(configs, figures, strict=True)))
    failed = Trial(1, start, TrialState.COMPLETE, 1 - losses[0], losses[0], False)
    times = {config: figure[1] for config, figure in zip(configs, figures, strict=True)}
    steps = first_success(failed, times, ALLOWED, probe)
    found = []
    try:
        asked = next(steps)
        for loss in losses[1:]:
            found.append(configs.index(asked))
            asked = steps.send(Trial(9, asked, TrialState.COMPLETE, 1 - loss, loss, loss <= ALLOWED))
        found.append(configs.index(asked))
    except StopIteration:
        pass
    return found


def test_after_a_small_miss_what_is_as_fast_and_about_as_good_comes_before_what_gives_up_time() -> None:
    assert tried([0.012], (1e-3, 0.40), (5e-4, 0.70), (1.1e-3, 0.40)) == [2]


def test_two_such_chances_are_taken_and_no_more() -> None:
    figures = [(1e-3, 0.40), (5e-4, 0.70), (1.1e-3, 0.40), (1.2e-3, 0.40), (1.3e-3, 0.40)]
    assert tried([0.012, 0.013, 0.013], *figures) == [2, 3, 1]


def test_after_a_large_miss_only_less_error_will_do() -> None:
    assert tried([0.05], (1e-3, 0.40), (1e-4, 0.70), (1.1e-3, 0.40)) == [1]


def test_what_is_about_as_bad_as_a_trial_that_failed_by_far_has_no_chance() -> None:
    figures = [(1.3e-3, 0.40), (1e-3, 0.45), (1e-4, 0.70), (1.2e-3, 0.45)]
    assert tried([0.08, 0.013], *figures)[-1] == 2
