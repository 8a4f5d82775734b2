"""The front of time and harm, and the search along it."""

from __future__ import annotations

import itertools

import pytest

from quaver.ops import QuantConfig
from quaver.strategies.steps.front import fallbacks, first_success, make_front
from quaver.testing import SimulatedModel
from quaver.time_model import Border, TimeModel
from quaver.trial import Trial, TrialState

ALLOWED = 0.01


def judged(model: SimulatedModel, config: QuantConfig, number: int) -> Trial:
    loss = 1 - model.score(config) / model.baseline
    return Trial(number, config, TrialState.COMPLETE, model.score(config), loss, loss <= ALLOWED)


def search(model: SimulatedModel) -> list[Trial]:
    start = model.space.all_int8()
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
    start = model.space.all_int8()
    points = make_front(start, model.space.tunable, model.probe.time_model(start), model.probe.sensitivity(start))
    assert len(points) > 3
    assert points[0].config == start
    for before, after in itertools.pairwise(points):
        assert after.seconds > before.seconds and after.harm < before.harm


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
    start = model.space.all_int8()
    borders = (Border(names[0], (names[1],), 200_000), Border(names[1], (names[2],), 200_000))
    times = TimeModel(dict.fromkeys(names, 1e-4), dict(zip(names, (5e-4, 0.99e-4, 5e-4), strict=True)), 0.0, borders)
    points = make_front(start, names, times, dict.fromkeys(names, 1e-6))
    assert points == [] or names[1] not in points[0].config.reduced_ops
