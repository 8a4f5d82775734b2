"""Did you mean ...? And what a result says of itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fake import MINMAX

from quaver import Criterion, QuantConfig, StopReason, Trial, TrialState, TuneResult
from quaver.engine.objective import Latency, Objective, Size
from quaver.nearest import hint, nearest

KNOWN = ["timeout", "max_trials", "threads", "MatMul"]
CONFIG = QuantConfig(dict.fromkeys("abcd", MINMAX))


def test_the_likeliest_names_come_first_whatever_their_case() -> None:
    assert nearest("max_trails", KNOWN)[0] == "max_trials"
    assert nearest("MATMUL", KNOWN)[0] == "MatMul"
    assert nearest("qqq", KNOWN) == []
    assert nearest("thread", KNOWN, count=1) == ["threads"]


def test_a_hint_offers_what_is_near_or_else_what_there_is() -> None:
    assert hint("time_out", KNOWN) == "did you mean 'timeout'?"
    assert hint("qqq", KNOWN) == "known are: 'timeout', 'max_trials', 'threads', 'MatMul'"
    assert hint("qqq", []) == "there are none"


def test_a_hint_does_not_grow_with_the_number_of_names() -> None:
    assert hint("qqq", [f"op{number}" for number in range(1000)]).endswith("'op11', ...")


def a_result(trials: list[Trial], objective: Objective, **changes: Any) -> TuneResult:
    values: dict[str, Any] = {
        "best": trials[0] if trials else None,
        "baseline": 0.9,
        "met": bool(trials),
        "reason": StopReason.MET,
        "trials": tuple(trials),
        "criterion": Criterion(),
        "objective": objective,
        "workspace": Path("w"),
        "history_path": Path("w/history.snapshot"),
        "model_path": None,
    }
    return TuneResult(**{**values, **changes})


def a_trial(number: int, loss: float | None, fallen: str = "", **more: Any) -> Trial:
    state = TrialState.FAILED if loss is None else TrialState.COMPLETE
    return Trial(number, CONFIG.fallback(*fallen), state, None if loss is None else 0.9 - loss, loss, True, **more)


def test_the_pareto_front_holds_what_no_other_beats() -> None:
    trials = [
        a_trial(1, 0.10, model_size=10),
        a_trial(2, 0.02, "ab", model_size=20),
        a_trial(3, 0.05, "abc", model_size=30),  # larger and worse than 2
        a_trial(4, None, model_size=1),
        a_trial(5, 0.0, "abcd", model_size=40),
        a_trial(6, 0.02, "cd", model_size=20),  # as good as 2, and later
    ]
    front = a_result(trials, Size()).pareto()
    assert [trial.number for trial in front] == [1, 2, 5]


def test_what_was_not_measured_is_not_compared() -> None:
    trials = [a_trial(1, 0.0), a_trial(2, 0.1, measured={"latency": 0.3}), a_trial(3, 0.0, measured={"latency": 0.6})]
    assert [trial.number for trial in a_result(trials, Latency()).pareto()] == [2, 3]


def test_a_result_says_how_it_ended_in_one_line() -> None:
    met = str(a_result([a_trial(1, 0.002, "a")], Size()))
    assert met == (
        "trial 1 meets the criterion (loss of at most 1.00%): score 0.898 against 0.9 in fp32, 3 int8 and 1 fp32 ops, "
        "after 2 evaluations (criterion met)"
    )
    assert "runs all in fp32: nothing was quantized" in str(a_result([a_trial(1, 0.0, "abcd")], Size()))
    assert "does NOT meet" in str(a_result([a_trial(1, 0.2)], Size(), met=False))
    assert str(a_result([], Size())) == "nothing found (criterion met); fp32 scores 0.9"


def test_without_a_model_there_is_nothing_to_save() -> None:
    with pytest.raises(ValueError, match="there is no best model to save"):
        a_result([], Size()).save("nothing.onnx")
