"""The one loop, driven by small strategies on a model that takes no time."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake import MINMAX, FakeAdapter, FakeFloat, FakeModel, drive, history_of, quality

from quaver import (
    Budget,
    Criterion,
    EvaluationError,
    Op,
    OpConfig,
    Probe,
    QuantConfig,
    SettingsError,
    StopReason,
    Strategy,
    StrategyError,
    Trial,
    TuningSpace,
    read_snapshot,
)
from quaver.engine.event_base import Event
from quaver.engine.events import BaselineScored, TrialFinished, TrialSlow, TrialStarted
from quaver.engine.run import loop, run
from quaver.engine.run import scheduling as clock
from quaver.engine.scoring import evaluate as evaluation
from quaver.engine.timing.objective import Int8Ops, Objective, Size, UserObjective
from quaver.ops import FLOAT, INT8
from quaver.strategies import Basic, Conservative

MODEL = FakeFloat({"a": 0.0, "b": 0.1, "c": 0.2, "d": 0.3})
SPACE = TuningSpace(MODEL.ops)
START = SPACE.default_config()

Propose = Callable[[TuningSpace, Probe], Any]


class Given(Strategy):
    """A strategy made from a function."""

    name = "given"

    def __init__(self, propose: Propose) -> None:
        self._propose = propose

    def propose(self, space: TuningSpace, probe: Probe) -> Any:
        return self._propose(space, probe)


def proposing(*configs: Any) -> Given:
    """A strategy that proposes just these."""

    def propose(space: TuningSpace, probe: Probe) -> Generator[Any, Any, None]:
        for config in configs:
            _ = yield config

    return Given(propose)


def fallen(*names: str) -> QuantConfig:
    return START.fallback(*names)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.snapshot"


def test_without_a_timeout_the_first_success_is_the_last_trial(path: Path) -> None:
    outcome = drive(MODEL, proposing(START, fallen("b", "c", "d"), fallen("a", "b", "c", "d")), path)
    assert outcome.reason is StopReason.MET
    assert outcome.configs == [START, fallen("b", "c", "d")]


@pytest.mark.parametrize("last", [START, fallen("a", "b", "c", "d")])
def test_a_strategy_that_continues_after_a_success_ends_by_itself(last: QuantConfig, path: Path) -> None:
    strategy = proposing(fallen("a", "b", "c", "d"), fallen("b", "c", "d"), last)
    strategy.continues_after_success = True
    outcome = drive(MODEL, strategy, path)
    assert outcome.reason is StopReason.MET
    assert outcome.best is not None and outcome.best.config == fallen("b", "c", "d")
    assert len(outcome.configs) == len({fallen("a", "b", "c", "d"), fallen("b", "c", "d"), last})


def searching_on(*configs: QuantConfig) -> Given:
    """A strategy that continues after its first success for these configurations, and proposes one more."""

    def propose(space: TuningSpace, probe: Probe) -> Generator[Any, Any, None]:
        _ = yield fallen("a", "b", "c", "d")
        strategy.continues_after_success = True
        for config in configs:
            _ = yield config
        strategy.continues_after_success = False
        _ = yield START

    strategy = Given(propose)
    return strategy


def test_a_strategy_may_continue_after_a_success_for_a_part_of_the_search(path: Path) -> None:
    outcome = drive(MODEL, searching_on(fallen("d"), fallen("b", "c", "d")), path)
    assert outcome.configs == [fallen("a", "b", "c", "d"), fallen("d"), fallen("b", "c", "d")]
    assert outcome.reason is StopReason.MET


def test_conservative_without_a_timeout_tries_all_types(path: Path) -> None:
    model = FakeFloat({"a": 0.0, "b": 0.1, "c": 0.0}, kinds={"b": "MatMul", "c": "Add"})
    outcome = drive(model, Conservative(), path)
    assert outcome.best is not None and outcome.best.config.fp32_ops == ("b",)


def test_a_success_is_the_reason_also_when_the_strategy_ends_with_it(path: Path) -> None:
    def propose(space: TuningSpace, probe: Probe) -> Any:
        trial = yield space.all_fp32()
        assert trial.met

    assert drive(MODEL, Given(propose), path).reason is StopReason.MET


def test_with_a_timeout_it_goes_on_and_the_best_by_objective_wins(path: Path) -> None:
    proposals = proposing(fallen("a", "b", "c", "d"), fallen("b", "c", "d"), START)
    outcome = drive(MODEL, proposals, path, budget=Budget(timeout=3600))
    assert outcome.reason is StopReason.EXHAUSTED and len(outcome.trials) == 3
    assert outcome.best is not None and outcome.best.number == 2


def test_the_timeout_is_looked_at_between_trials(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [time.monotonic()]
    for module in (run, loop, clock):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def slow(model: FakeModel) -> float:
        now[0] += 25.0
        return quality(model)

    outcome = drive(MODEL, Basic(), path, eval_func=slow, budget=Budget(timeout=60))
    # The baseline ends at 25 s, then trials at 50 and at 75: the last one was begun in time and is kept.
    assert (outcome.reason, len(outcome.trials)) == (StopReason.TIMEOUT, 2)
    now[0] = time.monotonic()
    resumed = drive(MODEL, Basic(), path, eval_func=slow, budget=Budget(timeout=90))
    # 75 s are gone when it starts, those of the baseline too, so there is time for one more.
    assert (resumed.reason, len(resumed.trials)) == (StopReason.TIMEOUT, 3)


def test_max_trials_counts_what_was_evaluated_in_all(path: Path) -> None:
    first = drive(MODEL, Basic(), path, budget=Budget(max_trials=3))
    assert (first.reason, len(first.trials)) == (StopReason.MAX_TRIALS, 3)
    second = drive(MODEL, Basic(), path, budget=Budget(max_trials=5))
    assert (second.reason, [trial.number for trial in second.trials]) == (StopReason.MAX_TRIALS, [1, 2, 3, 4, 5])
    assert len(second.evaluated) == 2
    third = drive(MODEL, Basic(), path, budget=Budget(max_trials=5))
    assert (third.reason, third.evaluated) == (StopReason.MAX_TRIALS, [])


def test_a_strategy_is_sent_the_trial_it_asked_for(path: Path) -> None:
    sent: list[Any] = []

    def propose(space: TuningSpace, probe: Probe) -> Any:
        sent.append((yield START))
        sent.append((yield [fallen("a"), fallen("b")]))
        sent.append((yield (fallen("c"),)))

    outcome = drive(MODEL, Given(propose), path)
    one, two, three = sent
    assert isinstance(one, Trial) and one.config == START
    assert [trial.config for trial in two] == [fallen("a"), fallen("b")]
    assert [trial.config for trial in three] == [fallen("c")]
    assert outcome.trials == [one, *two, *three]


def test_a_trial_tells_what_happened(path: Path) -> None:
    outcome = drive(MODEL, proposing(fallen("b", "c")), path)
    trial = outcome.trials[0]
    assert trial.score == pytest.approx(0.6) and trial.loss == pytest.approx(0.3) and not trial.met
    assert trial.model_size == 2 * 1 + 2 * 4
    assert len(trial.model_hash) == 64
    assert str(trial) == "trial 1: score 0.6, loss 0.3, not met, 2 int8 / 2 fp32 ops"


def test_a_batch_ends_in_the_middle_when_the_budget_is_spent(path: Path) -> None:
    outcome = drive(MODEL, proposing([START, fallen("b", "c", "d"), fallen("a")]), path)
    assert (outcome.reason, len(outcome.trials)) == (StopReason.MET, 2)


def test_a_known_configuration_is_answered_from_history(path: Path) -> None:
    sent: list[Any] = []

    def propose(space: TuningSpace, probe: Probe) -> Any:
        sent.append((yield START))
        sent.append((yield START))
        sent.extend((yield [START, fallen("a"), START]))

    outcome = drive(MODEL, Given(propose), path)
    assert outcome.evaluated == [None, START, fallen("a")]
    assert [trial.number for trial in sent] == [1, 1, 1, 2, 1]


def test_a_resumed_run_evaluates_nothing_twice(path: Path) -> None:
    whole = drive(MODEL, Basic(), path.with_name("whole"), criterion=Criterion(None, 0.0), budget=Budget(3600))
    drive(MODEL, Basic(), path, criterion=Criterion(None, 0.0), budget=Budget(3600, max_trials=4))
    rest = drive(MODEL, Basic(), path, criterion=Criterion(None, 0.0), budget=Budget(3600))
    assert rest.configs == whole.configs
    assert rest.evaluated == whole.configs[4:]


def test_another_strategy_uses_the_scores_there_are(path: Path) -> None:
    drive(MODEL, proposing(START, fallen("a"), fallen("b")), path)
    outcome = drive(MODEL, proposing(fallen("b"), fallen("b", "c"), START), path)
    assert outcome.evaluated == [fallen("b", "c")]


def test_a_verdict_is_given_by_the_criterion_of_this_run(path: Path) -> None:
    drive(MODEL, proposing(fallen("c", "d")), path, criterion=Criterion(None, 0.01))
    lenient = drive(MODEL, Basic(), path, criterion=Criterion(None, 0.2))
    assert (lenient.reason, lenient.evaluated) == (StopReason.MET, [])
    strict = drive(MODEL, proposing(fallen("c", "d")), path, criterion=Criterion(None, 0.01))
    assert strict.best is not None and not strict.best.met


def test_what_the_rules_of_this_run_forbid_cannot_win_again(path: Path) -> None:
    drive(MODEL, proposing(fallen("b", "c", "d")), path)
    forbids = TuningSpace(
        Op(op.name, op.kind, op.nodes, (FLOAT,) if op.name == "a" else op.choices) for op in SPACE.ops
    )
    outcome = drive(MODEL, proposing(forbids.default_config(), forbids.all_fp32()), path, space=forbids)
    assert outcome.reason is StopReason.MET and len(outcome.evaluated) == 2
    assert outcome.best is not None and outcome.best.config == forbids.all_fp32()
    assert len(outcome.trials) == 3  # remembered all the same


@pytest.mark.parametrize(
    ("proposal", "complaint"),
    [
        ("int8", "not str: 'i'"),
        (None, "not NoneType"),
        ({"a": MINMAX}, "not dict"),
        (QuantConfig({"a": MINMAX}), "op 'b' is missing"),
        (START.replace({"b": OpConfig(INT8, "magic")}), "op 'b' cannot run as 'int8 magic"),
        ([START, "int8"], "not str: 'int8'"),
    ],
)
def test_a_proposal_outside_the_space_is_named_before_anything_is_evaluated(
    proposal: Any, complaint: str, path: Path
) -> None:
    with pytest.raises(StrategyError, match=complaint):
        drive(MODEL, proposing(proposal), path)
    assert read_snapshot(path).trials == ()


@pytest.mark.parametrize("result", [None, [START], "basic"])
def test_propose_must_be_a_generator(result: Any, path: Path) -> None:
    with pytest.raises(StrategyError, match=r"given\.propose must be a generator: `yield` each configuration"):
        drive(MODEL, Given(lambda space, probe: result), path)


@pytest.mark.parametrize("spin", [[START], [[START, START]], [[]], [fallen("a"), START]])
def test_a_strategy_that_proposes_nothing_new_is_ended(
    spin: list[Any], path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def propose(space: TuningSpace, probe: Probe) -> Any:
        while True:
            for config in spin:
                _ = yield config

    outcome = drive(MODEL, Given(propose), path)
    assert outcome.reason is StopReason.EXHAUSTED
    assert "proposed nothing new 1000 times in a row" in caplog.text


def test_a_strategy_that_finds_something_new_now_and_then_is_not_ended(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "MAX_REPEATS", 5)

    def propose(space: TuningSpace, probe: Probe) -> Any:
        for name in "abcd":
            yield fallen(name)
            for _ in range(4):
                yield fallen("a")

    assert len(drive(MODEL, Given(propose), path).trials) == 4


def test_a_long_replay_is_not_taken_for_spinning(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "MAX_REPEATS", 2)
    drive(MODEL, Basic(), path, criterion=Criterion(None, 0.0), budget=Budget(max_trials=6))
    outcome = drive(MODEL, Basic(), path, criterion=Criterion(None, 0.0), budget=Budget(max_trials=7))
    assert len(outcome.trials) == 7


def test_an_exception_of_the_strategy_passes_and_what_was_learnt_is_kept(path: Path) -> None:
    def propose(space: TuningSpace, probe: Probe) -> Any:
        yield START
        raise LookupError("a bug")

    with pytest.raises(LookupError, match="a bug"):
        drive(MODEL, Given(propose), path)
    assert [trial.config for trial in read_snapshot(path).trials] == [START]


def test_a_strategy_is_closed_when_the_run_ends(path: Path) -> None:
    closed: list[bool] = []

    def propose(space: TuningSpace, probe: Probe) -> Any:
        try:
            while True:
                yield space.all_fp32()
        finally:
            closed.append(True)

    drive(MODEL, Given(propose), path)
    assert closed == [True]


def picky(*bad: str) -> Callable[[FakeModel], float]:
    """An eval_func that fails on models with one of these ops in fp32."""

    def eval_func(model: FakeModel) -> float:
        if model.config is not None and set(bad) & set(model.config.fp32_ops):
            raise OSError(f"no data for {model.config.fp32_ops}")
        return quality(model)

    return eval_func


def test_a_failing_trial_is_recorded_with_its_traceback_and_the_run_goes_on(path: Path) -> None:
    outcome = drive(MODEL, proposing(fallen("a"), fallen("b")), path, eval_func=picky("a"))
    failed, complete = read_snapshot(path).trials
    assert failed.failed and failed.score is None and failed.loss is None and not failed.met
    assert failed.error is not None
    assert failed.error.startswith("Traceback") and "in eval_func" in failed.error
    assert failed.error.rstrip().endswith("OSError: no data for ('a',)")
    assert str(failed) == "trial 1: failed, 3 int8 / 1 fp32 ops"
    assert not complete.failed and outcome.best == replace(complete, loss=0.5)


@pytest.mark.parametrize("bad", [math.nan, None, "0.5", (0.5, 0.1)])
def test_a_bad_score_of_a_trial_is_a_failed_trial(bad: Any, path: Path) -> None:
    outcome = drive(MODEL, proposing(START), path, eval_func=lambda model: bad if model.config else model.quality)
    assert outcome.trials[0].error is not None and "EvaluationError: eval_func returned" in outcome.trials[0].error
    assert outcome.best is None and outcome.reason is StopReason.EXHAUSTED


def test_a_model_that_cannot_be_built_is_a_failed_trial(path: Path) -> None:
    adapter = FakeAdapter(MODEL)
    adapter.broken = lambda config: "a" in config.fp32_ops
    outcome = drive(MODEL, proposing(fallen("a"), START), path, adapter=adapter)
    assert [trial.failed for trial in outcome.trials] == [True, False]
    assert "the framework refuses this model" in str(outcome.trials[0].error)
    assert outcome.evaluated == [None, START]


def test_three_failures_in_a_row_end_the_run(path: Path) -> None:
    proposals = proposing(*(fallen(name) for name in "abcd"))
    outcome = drive(MODEL, proposals, path, eval_func=picky("a", "b", "c", "d"))
    assert (outcome.reason, len(outcome.trials)) == (StopReason.FAILURES, 3)
    assert outcome.reason == "three trials in a row failed"
    assert outcome.best is None


def test_failures_with_a_success_between_them_do_not_end_the_run(path: Path) -> None:
    proposals = proposing(fallen("a"), fallen("b"), START, fallen("c"), fallen("d"))
    outcome = drive(MODEL, proposals, path, eval_func=picky("a", "b", "c", "d"))
    assert (outcome.reason, len(outcome.trials)) == (StopReason.EXHAUSTED, 5)


def test_a_run_that_ended_in_failures_asks_again_when_resumed(path: Path) -> None:
    proposals = (START, *(fallen(name) for name in "abcd"))
    drive(MODEL, proposing(*proposals), path, eval_func=picky("a", "b", "c", "d"))
    outcome = drive(MODEL, proposing(*proposals), path)
    assert outcome.evaluated == [fallen(name) for name in "abcd"]
    assert [trial.failed for trial in outcome.trials] == [False, True, True, True, False, False, False, False]
    again = drive(MODEL, proposing(*proposals), path)
    assert again.evaluated == []


def test_failures_of_an_earlier_run_do_not_count_against_this_one(path: Path) -> None:
    proposals = proposing(*(fallen(name) for name in "abcd"))
    for _ in range(2):
        drive(MODEL, proposals, path, eval_func=picky("a", "b", "c", "d"))
    assert len(read_snapshot(path).trials) == 6


@pytest.mark.parametrize(
    ("eval_func", "complaint"),
    [
        (lambda model: 1 / 0, "eval_func failed on the fp32 model: ZeroDivisionError: division by zero"),
        (lambda model: math.nan, "on the fp32 model eval_func returned nan"),
        (lambda model: None, "on the fp32 model eval_func returned None: is a `return` missing?"),
        (lambda model: (0.9, 0.1), "on the fp32 model eval_func returned a tuple"),
    ],
)
def test_trouble_with_the_baseline_is_raised_at_once(eval_func: Any, complaint: str, path: Path) -> None:
    with pytest.raises(EvaluationError) as caught:
        drive(MODEL, proposing(START), path, eval_func=eval_func)
    assert str(caught.value).startswith(complaint)
    snapshot = read_snapshot(path)
    assert snapshot.baseline is None and snapshot.trials == ()


def test_the_cause_of_a_failed_baseline_can_be_seen(path: Path) -> None:
    with pytest.raises(EvaluationError) as caught:
        drive(MODEL, proposing(START), path, eval_func=lambda model: {}["label"])
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_baseline_of_zero_fits_an_absolute_criterion_only(path: Path) -> None:
    with pytest.raises(SettingsError, match="the fp32 model scores 0"):
        drive(MODEL, proposing(START), path, eval_func=lambda model: 0, criterion=Criterion(0.01))
    outcome = drive(MODEL, proposing(START), path, eval_func=lambda model: 0, criterion=Criterion(None, 0.0))
    assert outcome.reason is StopReason.MET


def test_the_baseline_is_evaluated_once_and_recorded_as_trial_0(path: Path) -> None:
    drive(MODEL, proposing(START), path)
    outcome = drive(MODEL, proposing(fallen("a")), path)
    assert outcome.evaluated == [fallen("a")]
    baseline = read_snapshot(path).baseline
    assert baseline is not None and (baseline.number, baseline.score, baseline.config.int8_ops) == (0, 0.9, ())


@pytest.mark.parametrize("higher", [True, False])
def test_if_none_meets_the_criterion_the_most_accurate_is_returned(higher: bool, path: Path) -> None:
    sign = 1 if higher else -1
    outcome = drive(
        MODEL,
        proposing(START, fallen("d"), fallen("b")),
        path,
        eval_func=lambda model: sign * model.quality,
        criterion=Criterion(None, 0.01, higher),
    )
    assert outcome.best is not None and outcome.best.config == fallen("d")
    assert not outcome.best.met


@pytest.mark.parametrize(
    ("objective", "winner"),
    [
        (Size(), fallen("b", "c", "d")),
        (Int8Ops(), fallen("b", "c", "d")),
        (UserObjective(lambda model: len(model.config.int8_ops)), fallen("a", "b", "c", "d")),
    ],
)
def test_the_objective_decides_between_those_that_meet_the_criterion(
    objective: Objective, winner: QuantConfig, path: Path
) -> None:
    proposals = proposing(fallen("b", "c", "d"), fallen("a", "b", "c", "d"), START)
    outcome = drive(MODEL, proposals, path, objective=objective, budget=Budget(timeout=3600))
    assert outcome.best is not None and outcome.best.config == winner


def test_figures_are_measured_only_for_trials_that_meet_the_criterion(path: Path) -> None:
    objective = UserObjective(lambda model: 7.0)
    outcome = drive(MODEL, proposing(START, fallen("b", "c", "d")), path, objective=objective)
    assert [list(trial.measured.values()) for trial in outcome.trials] == [[], [7.0]]


def test_an_interrupted_evaluation_ends_the_run_with_the_best_so_far(path: Path) -> None:
    def interrupted(model: FakeModel) -> float:
        if model.config == fallen("b"):
            raise KeyboardInterrupt
        return quality(model)

    outcome = drive(MODEL, proposing(START, fallen("d"), fallen("b")), path, eval_func=interrupted)
    assert outcome.reason is StopReason.INTERRUPTED
    assert outcome.best is not None and outcome.best.config == fallen("d")
    resumed = drive(MODEL, proposing(START, fallen("d"), fallen("b")), path)
    assert resumed.evaluated == [fallen("b")]


def test_an_interrupted_strategy_ends_the_run_too(path: Path) -> None:
    def propose(space: TuningSpace, probe: Probe) -> Any:
        yield START
        raise KeyboardInterrupt

    assert drive(MODEL, Given(propose), path).reason is StopReason.INTERRUPTED


def test_a_result_is_on_the_disk_before_the_strategy_hears_of_it(path: Path) -> None:
    seen: list[int] = []

    def propose(space: TuningSpace, probe: Probe) -> Any:
        for config in (START, fallen("a"), fallen("b")):
            yield config
            seen.append(len(read_snapshot(path).trials))

    drive(MODEL, Given(propose), path)
    assert seen == [1, 2, 3]


def test_the_probe_reaches_the_strategy_and_costs_no_evaluation(path: Path) -> None:
    def propose(space: TuningSpace, probe: Probe) -> Any:
        config = space.default_config()
        for name in probe.ranking():
            config = config.fallback(name)
            yield config

    outcome = drive(MODEL, Given(propose), path)
    assert [config.fp32_ops for config in outcome.configs] == [("d",), ("c", "d"), ("b", "c", "d")]
    assert len(outcome.evaluated) == 4


def test_an_observer_hears_of_every_trial_and_the_best_so_far(path: Path) -> None:
    told: list[tuple[str, Any]] = []

    def note(event: Event) -> None:
        match event:
            case BaselineScored(trial):
                told.append(("baseline", trial.score))
            case TrialStarted(number, _):
                told.append(("evaluating", number))
            case TrialFinished(trial, best):
                told.append(("tried", (trial.number, best and best.number)))

    drive(MODEL, proposing(START, fallen("d"), fallen("a")), path, observer=note)
    assert told == [
        ("evaluating", 0), ("baseline", 0.9), ("evaluating", 1), ("tried", (1, 1)),
        ("evaluating", 2), ("tried", (2, 2)), ("evaluating", 3), ("tried", (3, 2)),
    ]  # fmt: skip


def test_an_evaluation_that_hangs_is_reported_and_goes_on(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "SLOW_SECONDS", 0.0)
    monkeypatch.setattr(evaluation, "SLOW_FACTOR", 1e-6)
    heard = threading.Event()
    told: list[int] = []

    def note(event: Event) -> None:
        if isinstance(event, TrialSlow):
            assert event.seconds > event.usual * 1e-6
            told.append(event.number)
            heard.set()

    def hangs(model: FakeModel) -> float:
        if model.config is not None:
            assert heard.wait(30), "nobody noticed"
        return quality(model)

    outcome = drive(MODEL, proposing(START), path, eval_func=hangs, observer=note)
    assert set(told) == {1}
    assert not outcome.trials[0].failed


def test_an_interrupt_is_logged(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def interrupted(model: FakeModel) -> float:
        if model.config is not None:
            raise KeyboardInterrupt
        return quality(model)

    with caplog.at_level(logging.WARNING, "quaver"):
        drive(MODEL, proposing(START), path, eval_func=interrupted)
    assert "interrupted; the best trial so far is kept" in caplog.text


def test_the_history_of_a_fake_model_is_a_real_one(path: Path) -> None:
    drive(MODEL, proposing(START), path)
    with history_of(MODEL, path) as history:
        assert history.find(START) is not None and [trial.number for trial in history.trials] == [1]
