"""Ask and tell: a run for callers with a loop of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake import FakeAdapter, FakeFloat, quality

import quaver
from quaver import StopReason, Strategy, StrategyError, TuneResult
from quaver.adapters import registry

MODEL = FakeFloat({"a": 0.0, "b": 0.2, "c": 0.3})
DATA = np.zeros((4, 2), np.float32)


@pytest.fixture(autouse=True)
def _fake_models_in_an_empty_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(registry, "adapters", lambda: {"fake": FakeAdapter})
    monkeypatch.chdir(tmp_path)


def open_run(**changes: Any) -> Any:
    settings = {"calib_dataloader": DATA, "strategy": "basic", "objective": "size", **changes}
    return quaver.open_run(MODEL, **settings)


def told(**changes: Any) -> TuneResult:
    with open_run(**changes) as run:
        while (trial := run.ask()) is not None:
            run.tell(trial, quality(trial.model))
        return run.result()  # type: ignore[no-any-return]


def test_asking_and_telling_ends_as_fit_does() -> None:
    settings: dict[str, Any] = {"strategy": "basic", "objective": "size", "calib_dataloader": DATA}
    fitted = quaver.fit(MODEL, eval_func=quality, workspace="fitted", **settings)
    asked = told(workspace="asked")
    assert asked.best == fitted.best or (asked.best and fitted.best and asked.best.config == fitted.best.config)
    assert [(trial.config, trial.score, trial.met) for trial in asked.trials] == [
        (trial.config, trial.score, trial.met) for trial in fitted.trials
    ]
    assert asked.reason is fitted.reason and asked.baseline == fitted.baseline and asked.met
    assert asked.model_path is not None and asked.model_path.exists()


def test_the_fp32_model_is_asked_for_first() -> None:
    with open_run() as run:
        first = run.ask()
        assert first.number == 0 and first.model.config is None and not first.config.quantized_ops
        with pytest.raises(StrategyError, match="the fp32 model has no score yet"):
            run.ask()
        run.tell(first, 0.9)
        second = run.ask()
        assert second.number == 1 and len(second.config.quantized_ops) == 3
        judged = run.tell(second, 0.2)
        assert not judged.met and judged.loss == pytest.approx(7 / 9)
        assert run.best == judged and run.trials == (judged,) and run.reason is None
        assert "1 trials, in progress" in repr(run)


class InPairs(Strategy):
    """Two at a time, one of them twice."""

    name = "in_pairs"

    def propose(self, space: Any, probe: Any) -> Any:
        start = space.default_config()
        heard = yield [start, start.fallback("b"), start]
        assert [trial.config for trial in heard] == [start, start.fallback("b"), start]
        yield start.fallback("b", "c")


def test_several_trials_can_be_open_and_are_answered_in_the_order_asked() -> None:
    with open_run(strategy=InPairs, timeout=60) as run:
        run.tell(run.ask(), 0.9)
        one, other = run.ask(), run.ask()
        assert (one.number, other.number) == (1, 2)
        with pytest.raises(StrategyError, match=r"waits for the score of trial 1, 2"):
            run.ask()
        run.tell(other, 0.5)
        run.tell(one, 0.4)
        last = run.ask()
        assert last.number == 3 and last.config.fp32_ops == ("b", "c")
        run.tell(last, 0.9)
        assert run.ask() is None and run.reason is StopReason.EXHAUSTED
        assert run.result().met


def test_a_trial_is_told_once_and_only_while_the_run_goes_on() -> None:
    with open_run() as run:
        base = run.ask()
        run.tell(base, 0.9)
        with pytest.raises(StrategyError, match="trial 0 has its score already, or its run is over"):
            run.tell(base, 0.9)


def test_a_score_that_is_no_number_is_refused_and_can_be_told_again() -> None:
    with open_run() as run:
        base = run.ask()
        with pytest.raises(quaver.EvaluationError, match="returned a str"):
            run.tell(base, "good")
        run.tell(base, np.float32(0.9))
        assert run.ask().number == 1


def test_a_trial_that_cannot_be_scored_is_told_to_have_failed() -> None:
    with open_run(strategy="basic", timeout=60) as run:
        run.tell(run.ask(), 0.9)
        for _ in range(3):
            assert run.fail(run.ask(), "the robot fell over").failed
        assert run.ask() is None and run.reason is StopReason.FAILURES
        assert run.result().best is None and "robot" in run.trials[-1].error


def test_a_run_that_is_left_can_be_gone_on_with() -> None:
    with open_run(workspace="run") as run:
        run.tell(run.ask(), 0.9)
        run.tell(run.ask(), 0.4)
    with open_run(resume="run") as run:
        trial = run.ask()
        assert trial.number == 2 and run.trials[0].score == 0.4
        run.tell(trial, 0.9)
        assert run.result().met and run.result() is run.result()


def test_a_result_ends_the_run_and_needs_a_baseline() -> None:
    with open_run(timeout=60) as run, pytest.raises(quaver.HistoryError, match="the fp32 model has no score yet"):
        run.result()
    with open_run(timeout=60) as run:
        run.tell(run.ask(), 0.9)
        run.tell(run.ask(), 0.9)
        result = run.result()
        assert result.reason is StopReason.INTERRUPTED and result.met and run.ask() is None
