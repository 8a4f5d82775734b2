"""`drive`: as much of a loop as a strategy needs."""

from __future__ import annotations

from typing import Any

import pytest

from quaver import Criterion, Probe, QuantConfig, Strategy, StrategyError, Trial, TuningSpace
from quaver.ops import FLOAT
from quaver.testing import SimulatedModel, drive

MODEL = SimulatedModel(ops=4, culprits=["op002"])
START = MODEL.space.default_config()


class Given(Strategy):
    """A strategy made from a generator function."""

    name = "given"

    def __init__(self, propose: Any) -> None:
        self._propose = propose

    def propose(self, space: TuningSpace, probe: Probe) -> Any:
        return self._propose(space, probe)


def proposing(*asked: Any) -> tuple[Given, list[Any]]:
    answers = []

    def propose(space: TuningSpace, probe: Probe) -> Any:
        for one in asked:
            answer = yield one
            answers.append(answer)

    return Given(propose), answers


class Counted(SimulatedModel):
    """Notes what is scored."""

    def score(self, config: QuantConfig) -> float:
        self.__dict__.setdefault("scored", []).append(config)
        return super().score(config)


def test_it_ends_at_the_first_success_unless_told_otherwise() -> None:
    good, better = START.fallback("op002"), START.fallback("op001", "op002")
    strategy, _ = proposing(START, good, better)
    trials = drive(strategy, MODEL)
    assert [(trial.number, trial.config, trial.met) for trial in trials] == [(1, START, False), (2, good, True)]
    assert [trial.config for trial in drive(strategy, MODEL, stop_at_first=False)] == [START, good, better]
    assert [trial.config for trial in drive(strategy, MODEL, max_trials=1)] == [START]


def test_the_criterion_is_the_callers() -> None:
    strategy, _ = proposing(START)
    assert drive(strategy, MODEL, Criterion(relative=0.5))[0].met


def test_a_list_is_answered_by_a_list_in_its_order() -> None:
    one, two = START, START.fallback("op000")
    strategy, answers = proposing([one, two], (two,), one)
    drive(strategy, MODEL, stop_at_first=False)
    assert [trial.config for trial in answers[0]] == [one, two]
    assert [trial.config for trial in answers[1]] == [two]
    assert isinstance(answers[2], Trial)


def test_a_known_configuration_is_answered_from_memory() -> None:
    model = Counted(ops=4, culprits=["op002"])
    strategy, answers = proposing(START, START)
    assert len(drive(strategy, model)) == 1
    assert answers[0] is answers[1]
    assert model.__dict__["scored"] == [START]


def test_an_evaluation_that_raises_is_a_failed_trial() -> None:
    class Broken(SimulatedModel):
        def score(self, config: QuantConfig) -> float:
            raise RuntimeError("out of memory")

    strategy, answers = proposing(START, START.fallback("op000"))
    trials = drive(strategy, Broken(ops=4))
    assert len(trials) == 2 and answers == trials
    assert all(trial.failed and "out of memory" in (trial.error or "") for trial in trials)


@pytest.mark.parametrize("strange", [3, "all", {"op000"}, [START, 3], QuantConfig({"op000": FLOAT})])
def test_what_lies_outside_the_space_is_refused(strange: Any) -> None:
    strategy, _ = proposing(strange)
    with pytest.raises(StrategyError):
        drive(strategy, MODEL)


@pytest.mark.parametrize("asked", [START, [START], []])
def test_a_strategy_that_goes_round_in_circles_is_stopped(asked: Any) -> None:
    def propose(space: TuningSpace, probe: Probe) -> Any:
        while True:
            yield asked

    with pytest.raises(StrategyError, match="would never end"):
        drive(Given(propose), MODEL)


def test_it_goes_on_from_known_trials() -> None:
    whole = drive("auto", MODEL, stop_at_first=False)
    model = Counted(ops=4, culprits=["op002"])
    assert drive("auto", model, stop_at_first=False, earlier=whole[:1]) == whole
    assert model.__dict__["scored"] == [trial.config for trial in whole[1:]]


def test_the_strategy_is_told_its_seed_and_objective_and_nothing_stays_on_it() -> None:
    told: list[tuple[int, str]] = []

    class Listens(Strategy):
        def propose(self, space: TuningSpace, probe: Probe) -> Any:
            told.append((self.seed, self.objective))
            yield START

    mine = Listens()
    drive(mine, MODEL, seed=7, objective="size")
    assert told == [(7, "size")]
    assert vars(mine) == {}
