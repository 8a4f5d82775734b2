"""The one judge: loss, met, best and the Pareto front, for whoever wants to know."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from fake import MINMAX
from hypothesis import given
from hypothesis import strategies as st

from quaver import Criterion, QuantConfig, Trial, TrialState, TuningSpace
from quaver.engine.scoring.judge import Judge
from quaver.engine.timing.objective import OBJECTIVES, Latency, Objective, Size
from quaver.ops import FLOAT, Op

CONFIG = QuantConfig(dict.fromkeys("abcd", MINMAX))
SPACE = TuningSpace(Op(name, "Conv", (name,), (MINMAX, FLOAT)) for name in "abcd")


def a_trial(number: int, score: float | None, fallen: str = "", **more: object) -> Trial:
    state = TrialState.FAILED if score is None else TrialState.COMPLETE
    return Trial(number, CONFIG.fallback(*fallen), state, score, **more)  # type: ignore[arg-type]


def judged(*trials: Trial, objective: Objective | None = None, baseline: float = 1.0) -> Judge:
    judge = Judge(Criterion(None, 0.1), objective or Size())
    judge.begin(a_trial(0, baseline))
    judge.extend(trials)
    return judge


TRIALS = st.lists(
    st.tuples(
        st.one_of(st.none(), st.floats(0.5, 1.1)),
        st.sets(st.sampled_from("abcd")),
        st.integers(1, 5),
        st.floats(0.9, 1.1),
        st.sampled_from([0.0, 0.02, 0.3]),
    ),
    max_size=12,
)


@given(TRIALS, st.sampled_from(sorted(OBJECTIVES)), st.booleans())
def test_the_best_as_trials_come_is_the_best_of_all_at_once(
    drawn: list[tuple[float | None, set[str], int, float, float]], objective: str, updated: bool
) -> None:
    trials = [
        a_trial(
            number, score, "".join(fallen), model_size=size, measured={"latency": latency, "latency_spread": spread}
        )
        for number, (score, fallen, size, latency, spread) in enumerate(drawn, 1)
    ]
    judge = judged(objective=OBJECTIVES[objective]())
    for trial in trials:
        if updated:  # the score first, the figure as a second record
            judge.add(replace(trial, measured={}))
        judge.add(trial)
    met = [trial for trial in judge.trials if trial.met]
    of_interest = met or [trial for trial in judge.trials if trial.loss is not None]
    if met:
        value, margin = judge.objective.value, judge.objective.margin
        certain = min(value(trial) + margin(trial) * abs(value(trial)) for trial in met)
        tied = [trial for trial in met if value(trial) - margin(trial) * abs(value(trial)) <= certain]
        expected = min(tied, key=lambda trial: (-len(trial.config.quantized_ops), trial.loss, trial.number))
    else:
        expected = min(of_interest, key=lambda trial: (trial.loss, trial.number), default=None)
    assert judge.best == expected and judge.met == bool(met) and judge.evaluated == len(trials)
    assert [trial.number for trial in judge.trials] == [trial.number for trial in trials]


def test_a_verdict_follows_from_the_criterion_and_not_from_what_a_record_says() -> None:
    stale = replace(a_trial(1, 0.5), loss=0.0, met=True)
    assert not judged(stale).trials[0].met and judged(stale).trials[0].loss == 0.5
    assert judged(replace(a_trial(1, None), loss=0.0, met=True)).trials[0].loss is None


def test_nothing_is_judged_without_a_baseline_or_by_a_relative_loss_from_zero() -> None:
    for baseline in (None, a_trial(0, 0.0)):
        judge = Judge(Criterion(), Size())
        judge.begin(baseline)
        assert judge.add(a_trial(1, 0.5)).loss is None and judge.best is None


def test_a_baseline_that_comes_late_judges_what_was_there() -> None:
    judge = Judge(Criterion(None, 0.1), Size())
    judge.add(a_trial(1, 0.95))
    assert judge.best is None
    judge.begin(a_trial(0, 1.0))
    assert judge.met and judge.evaluated == 1


def test_what_the_rules_forbid_cannot_win() -> None:
    judge = Judge.from_settings({"absolute": 0.1, "op_name_dict": {"a": "fp32"}, "objective": "size"}, SPACE)
    judge.begin(a_trial(0, 1.0))
    judge.extend([a_trial(1, 1.0, model_size=1), a_trial(2, 0.99, "a", model_size=2)])
    assert judge.best is not None and judge.best.number == 2
    assert [trial.met for trial in judge.trials] == [True, True]


@pytest.mark.parametrize("rules", [{"nowhere": "fp32"}, {"a": "octal"}, 5])
def test_rules_that_nobody_understands_any_more_forbid_nothing(rules: object) -> None:
    judge = Judge.from_settings({"relative": 0.1, "op_name_dict": rules, "objective": "size"}, SPACE)
    judge.begin(a_trial(0, 1.0))
    assert judge.add(a_trial(1, 1.0)).met and judge.best is not None


def test_the_front_holds_what_no_other_beats() -> None:
    trials = [a_trial(1, 0.9, model_size=1), a_trial(2, 0.95, model_size=2), a_trial(3, 0.94, model_size=3)]
    assert [trial.number for trial in judged(*trials).pareto()] == [1, 2]
    assert judged(*trials, objective=Latency()).pareto() == ()


def test_a_trial_costs_the_same_however_many_there_are() -> None:
    """Counted in looks at the objective, not in seconds."""

    class Counted(Size):
        looks = 0

        def value(self, trial: Trial) -> float:
            self.looks += 1
            return super().value(trial)

    objective = Counted()
    rng = random.Random(0)
    judge = judged(objective=objective)
    for number in range(1, 2001):
        judge.add(a_trial(number, 1.0, model_size=rng.randrange(10**6)))
    assert objective.looks <= 2 * 2000
