"""Which of the trials that meet the criterion is best."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest
from fake import MINMAX

from quaver import Criterion, QuantConfig, SettingsError, Trial, TrialState
from quaver.engine.scoring.judge import Judge
from quaver.engine.timing import latency
from quaver.engine.timing.latency import relative_latency
from quaver.engine.timing.objective import Int8Ops, Latency, Objective, Size, UserObjective, make_objective, name_of

CONFIG = QuantConfig(dict.fromkeys("abcd", MINMAX))


def a_trial(number: int, loss: float | None, met: bool, fallen: str = "", **more: Any) -> Trial:
    state = TrialState.FAILED if loss is None else TrialState.COMPLETE
    score, lost = (None, None) if loss is None else (1 - loss, 1.0 - (1 - loss))
    return Trial(number, CONFIG.fallback(*fallen), state, score, lost, met, **more)


def pick_best(trials: list[Trial], objective: Objective) -> Trial | None:
    judge = Judge(Criterion(None, 0.1), objective)
    judge.begin(Trial(0, CONFIG, TrialState.COMPLETE, 1.0))
    judge.extend(trials)
    return judge.best


class Clock:
    """A model that takes a known time, on a clock that moves only when a model runs."""

    now = 0.0

    def __init__(self, *seconds: float, threads: int = 0) -> None:
        self._seconds = list(seconds)
        self.runs = 0
        self.threads = threads
        self.used: set[int] = set()

    def processor_time(self) -> float:
        return float(latency.time.thread_time())

    def with_threads(self, threads: int) -> Clock:
        self.threads = threads
        return self

    def run(self, feed: Any) -> Any:
        self.used.add(self.threads)
        Clock.now += self._seconds[min(self.runs, len(self._seconds) - 1)]
        self.runs += 1


@pytest.fixture(autouse=True)
def _stopped_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latency.time, "perf_counter", lambda: Clock.now)
    monkeypatch.setattr(latency.time, "process_time", lambda: Clock.now)
    monkeypatch.setattr(latency.time, "thread_time", lambda: 0.0)  # other threads do all the work


def test_latency_is_that_of_undisturbed_runs_in_turns_as_a_fraction_of_the_other() -> None:
    # The first run of each is a warm-up, and what slows some runs down does not count.
    fast, slow = Clock(50, 1, 1, 99, 1), Clock(70, 4)
    assert relative_latency(fast, slow, {}) == 0.25
    assert fast.runs == slow.runs == 1 + latency.MIN_ROUNDS


def test_other_programs_do_not_count_where_one_thread_does_all_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = {"seconds": 0.0}

    class Disturbed:
        """Takes the same time of the processor in each run, while others keep it waiting."""

        def __init__(self, seconds: float, waiting: float) -> None:
            self.seconds, self.waiting = seconds, waiting

        def processor_time(self) -> float:
            return busy["seconds"]

        def run(self, feed: Any) -> Any:
            busy["seconds"] += self.seconds
            Clock.now += self.seconds + self.waiting

    for clock in ("process_time", "thread_time"):
        monkeypatch.setattr(latency.time, clock, lambda: busy["seconds"])
    assert relative_latency(Disturbed(1, 7), Disturbed(2, 0), {}) == 0.5


def test_runs_are_repeated_until_they_tell_the_same_or_the_time_is_used() -> None:
    steady, other = Clock(1e-2), Clock(2e-2)
    assert [one.spread for one in latency.measure([steady, other], {})] == [0.0, 0.0]
    assert steady.runs == 1 + latency.MIN_ROUNDS
    tiny = Clock(1e-4)
    latency.measure([tiny], {})
    assert tiny.runs * 1e-4 >= latency.MIN_SECONDS  # a few runs of a small model tell nothing
    rng = random.Random(1)
    restless = Clock(*(rng.uniform(1e-3, 2e-3) for _ in range(500)))
    latency.measure([restless], {}, seconds=0.05)
    assert latency.MIN_ROUNDS < restless.runs < 60


def test_latency_is_measured_against_the_float_model_if_there_is_a_sample() -> None:
    figures = Latency().measure(Clock(1), lambda: Clock(2), {"x": np.zeros(1)})
    assert figures == {"latency": 0.5, "latency_ms": 1000.0, "latency_spread": 0.0}
    assert Latency().measure(None, lambda: pytest.fail("nothing to measure with"), None) == {}


@pytest.mark.parametrize(("wanted", "used"), [(0, 1), (1, 1), (4, 4)])
def test_latency_is_measured_on_the_threads_that_were_asked_for_or_on_one(wanted: int, used: int) -> None:
    model, base = Clock(1, threads=wanted), Clock(2, threads=wanted)
    Latency().measure(model, lambda: base, {})
    assert model.used == base.used == {used}
    assert model.threads == wanted  # it is the caller's


def test_the_fastest_of_those_that_meet_the_criterion_wins() -> None:
    trials = [
        a_trial(1, 0.5, False, measured={"latency": 0.1}),
        a_trial(2, 0.0, True, measured={"latency": 0.8}),
        a_trial(3, 0.01, True, measured={"latency": 0.4}),
    ]
    assert pick_best(trials, Latency()) == trials[2]


def test_without_a_measurement_more_int8_ops_count_as_faster() -> None:
    trials = [a_trial(1, 0.0, True, "ab"), a_trial(2, 0.01, True, "a"), a_trial(3, 0.0, True, "abc")]
    assert pick_best(trials, Latency()) == trials[1]


def test_the_smallest_wins_by_size_and_the_most_int8_ops_win_by_their_number() -> None:
    trials = [a_trial(1, 0.0, True, "a", model_size=30), a_trial(2, 0.0, True, "ab", model_size=20)]
    assert pick_best(trials, Size()) == trials[1]
    assert pick_best(trials, Int8Ops()) == trials[0]


def test_a_tie_goes_to_the_more_accurate_and_then_to_the_earlier() -> None:
    trials = [a_trial(1, 0.01, True), a_trial(2, 0.0, True), a_trial(3, 0.0, True)]
    assert pick_best(trials, Int8Ops()) == trials[1]


def test_if_none_meets_the_criterion_the_most_accurate_is_best() -> None:
    trials = [a_trial(1, 0.3, False), a_trial(2, None, False), a_trial(3, 0.2, False, "abcd"), a_trial(4, 0.2, False)]
    assert pick_best(trials, Size()) == trials[2]


def test_of_failed_trials_none_is_best() -> None:
    assert pick_best([], Size()) is None
    assert pick_best([a_trial(1, None, False)], Size()) is None


def test_a_function_of_the_model_is_an_objective() -> None:
    objective = make_objective(lambda model: model.energy)
    assert isinstance(objective, UserObjective)
    assert objective.measure(type("Model", (), {"energy": np.float32(3)}), lambda: None, None) == {objective.name: 3.0}
    trials = [
        a_trial(1, 0.0, True, measured={objective.name: 3.0}), a_trial(2, 0.0, True, measured={objective.name: 2.0}),
    ]  # fmt: skip
    assert pick_best([*trials, a_trial(3, 0.0, True)], objective) == trials[1]


def test_figures_of_another_function_are_not_compared() -> None:
    one, other = make_objective(lambda model: model.energy), make_objective(lambda model: model.watts)
    assert one.name != other.name and one.name == name_of(lambda model: model.energy)
    trials = [a_trial(1, 0.01, True, measured={one.name: 1.0}), a_trial(2, 0.0, True, measured={other.name: 9.0})]
    assert pick_best(trials, other) == trials[1] and pick_best(trials, one) == trials[0]


def test_an_objective_that_cannot_be_compared_is_an_error() -> None:
    with pytest.raises(ValueError, match="returned NaN"):
        make_objective(lambda model: math.nan).measure(None, lambda: None, None)


@pytest.mark.parametrize(
    ("wanted", "kind"),
    [("latency", Latency), ("size", Size), ("int8_ops", Int8Ops), (Size, Size), (Size(), Size)],
)
def test_an_objective_goes_by_its_name_its_class_or_as_it_is(wanted: Any, kind: type[Objective]) -> None:
    assert type(make_objective(wanted)) is kind


@pytest.mark.parametrize(("wanted", "near"), [("latncy", "did you mean 'latency'"), (None, "'size'"), (5, "'size'")])
def test_an_unknown_objective_is_named_with_those_there_are(wanted: Any, near: str) -> None:
    with pytest.raises(SettingsError, match=f"unknown objective {wanted!r}; .*{near}.*A function of the model works"):
        make_objective(wanted)


def test_of_models_to_choose_from_those_that_are_much_slower_are_given_up_early() -> None:
    rng = random.Random(1)

    def restless(seconds: float) -> Clock:
        return Clock(*(seconds * rng.uniform(1.0, 1.1) for _ in range(5000)))

    base, fast, close, slow = (restless(seconds) for seconds in (2e-3, 1e-3, 1.03e-3, 1.5e-3))
    taken = latency.measure([base, fast, close, slow], {}, seconds=0.4, within=1.08)
    assert base.runs == fast.runs == close.runs > slow.runs
    assert taken[3].seconds / taken[1].seconds == pytest.approx(1.5, rel=0.05)


def test_a_model_whose_first_runs_are_slow_is_not_given_up_for_them() -> None:
    base, fast, late = Clock(2e-3), Clock(1e-3), Clock(*[3e-3] * 9, 0.9e-3)
    taken = latency.measure([base, fast, late], {}, seconds=0.2, within=1.08)
    assert late.runs == fast.runs
    assert taken[2].seconds == pytest.approx(0.9e-3)


def test_a_busy_machine_gets_as_many_rounds_as_a_quiet_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other programs take three of four seconds: what counts is the work that was done."""
    rounds = []
    for waiting in (0.0, 3.0):
        rng = random.Random(1)
        times = [rng.uniform(1e-3, 2e-3) for _ in range(500)]
        model = Clock(*(seconds * (1 + waiting) for seconds in times))
        monkeypatch.setattr(latency.time, "process_time", lambda waiting=waiting: Clock.now / (1 + waiting))
        latency.measure([model], {}, seconds=0.05)
        rounds.append(model.runs)
    assert rounds[0] == rounds[1]
