"""The loss by each limit, its confidence, and hostile files."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from fake import MINMAX

from quaver import Criterion, QuantConfig, Trial, TrialState
from quaver.engine.scoring.confirmation import CONFIRMATION_NOTE, confirmations
from quaver.engine.scoring.early_stop import rules_out
from quaver.engine.scoring.judge import Judge
from quaver.engine.timing.objective import Size
from quaver.scores import Samples
from quaver.slices import Slices

CONFIG = QuantConfig(dict.fromkeys("abcd", MINMAX))
RIGHT = np.array([1.0] * 80 + [0.0] * 20)
HALVES = Slices.of(["left"] * 50 + ["right"] * 50)


def a_trial(number: int, scores: Any, stopped: bool = False) -> Trial:
    state = TrialState.STOPPED if stopped else TrialState.COMPLETE
    value = float(np.mean(scores))
    return Trial(number, CONFIG, state, value, samples={"score": Samples.of(np.asarray(scores, float))}, model_size=1)


def judged(criterion: Criterion, *trials: Trial) -> Judge:
    judge = Judge(criterion, Size())
    judge.begin(a_trial(0, RIGHT))
    judge.extend(trials)
    return judge


def wrong(*places: int) -> Any:
    scores = RIGHT.copy()
    scores[list(places)] = 0.0
    return scores


def test_a_slice_is_judged_by_its_own_mean() -> None:
    judge = judged(Criterion(0.05, slices=HALVES, slice_limit=0.02), a_trial(1, wrong(0, 1)))
    (trial,) = judge.trials
    first = judge.losses(trial)[0]
    assert (first.limit.slice, first.baseline, first.score, first.met) == ("left", 1.0, 0.96, False)
    assert not trial.met and trial.loss == pytest.approx(0.04 * 0.05 / 0.02)
    assert judged(Criterion(0.05), a_trial(1, wrong(0, 1))).trials[0].met


def test_of_a_stopped_trial_only_what_was_seen_is_compared() -> None:
    judge = judged(Criterion(0.05, slices=HALVES), a_trial(1, wrong(0, 1)[:40], stopped=True))
    losses = {lost.limit.slice: lost for lost in judge.losses(judge.trials[0])}
    assert losses["left"].score == pytest.approx(1 - 2 / 40) and "right" not in losses


def test_the_choice_among_many_makes_less_sure() -> None:
    judge = judged(Criterion(0.1), *(a_trial(number, wrong(number)) for number in range(1, 6)))
    sure = judge.confidence(judge.trials[0])
    assert sure is not None and sure.trials == 5 and sure.chosen == pytest.approx(1 - 5 * (1 - sure.alone))
    assert 0.9 < sure.alone < 1


def test_with_confidence_a_later_trial_must_be_surer() -> None:
    loss = wrong(0, 1)
    first, late = (judged(Criterion(0.08, confidence=0.9), a_trial(number, loss)).trials[0] for number in (1, 40))
    assert first.loss == late.loss and first.met and not late.met


def test_within_a_budget_nothing_is_ruled_out_and_nobody_is_asked_how_sure() -> None:
    from quaver.target_budget import TargetBudget

    judge = judged(Criterion.within(TargetBudget(None, 0.5)), a_trial(1, np.zeros(100)))
    assert judge.confidence(judge.trials[0]) is None
    assert not rules_out(judge.criterion, a_trial(0, RIGHT), a_trial(1, np.zeros(50), stopped=True), 0.05)


def test_a_judge_of_scores_costs_the_same_for_each_of_many_trials() -> None:
    """Counted in looks at the objective, not in seconds."""

    class Counted(Size):
        looks = 0

        def value(self, trial: Trial) -> float:
            self.looks += 1
            return super().value(trial)

    objective, rng = Counted(), random.Random(0)
    judge = Judge(Criterion(0.5), objective)
    judge.begin(a_trial(0, RIGHT))
    for number in range(1, 1001):
        judge.add(a_trial(number, wrong(rng.randrange(80))))
        judge.confirm(())
    assert objective.looks <= 2 * 1000


@pytest.mark.parametrize(
    "scores", [np.ones(300), np.full(100, 1e308), np.full(100, -1e308), np.zeros(1), np.ones(99)], ids=str
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_scores_that_no_run_has_made_break_nothing(scores: Any) -> None:
    for criterion in (Criterion(0.05, slices=HALVES, confidence=0.9), Criterion(None, 0.1), Criterion({"top1": 0.1})):
        for stopped in (False, True):
            judge = judged(criterion, a_trial(1, scores, stopped))
            judge.confidence(judge.trials[0])
            assert not (stopped and judge.trials[0].met)
            rules_out(Criterion(), a_trial(0, RIGHT), a_trial(1, scores, stopped), 0.05)


@pytest.mark.parametrize(
    "noted",
    [
        7,
        [1],
        {"0": 1},
        {"0": [1]},
        {"0": {"score": 1}},
        {"0": {"score": 1.0}, "x": {"score": 1.0}},
        {"0": {"score": 1.0}, "1": {"score": 1.0, "samples": {"score": ("bits", 9, b"")}}},
        {"0": {"score": 0.0}, "1": {"score": 1.0}},
        {"0": {"score": 1.0}, "1": {"score": 1.0, "metrics": {"f1": 1.0}}},
    ],
)
def test_confirmations_that_no_run_has_noted_are_left_out(noted: Any) -> None:
    assert confirmations({CONFIRMATION_NOTE: noted}, Criterion()) == ()


def test_confirmations_are_judged_by_the_criterion_of_the_reader() -> None:
    notes = {CONFIRMATION_NOTE: {"0": {"score": 1.0}, "3": {"score": 0.9}}}
    assert [one.met for one in confirmations(notes, Criterion(0.05))] == [False]
    assert [one.met for one in confirmations(notes, Criterion(0.2))] == [True]
