"""Did you mean ...? And what a result says of itself."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from fake import MINMAX

from quaver import (
    Criterion,
    MissingPackageError,
    ModelError,
    OpConfig,
    Precision,
    QuantConfig,
    QuaverError,
    StopReason,
    Trial,
    TrialState,
    TuneResult,
)
from quaver.engine.timing.objective import Latency, Objective, Size
from quaver.suggestions import hint, nearest

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
        "trial 1 meets the criterion (loss of at most 1.00%): score 0.898 vs 0.9 in fp32, 3 int8 and 1 fp32 ops, "
        "after 2 evaluations (criterion met)"
    )
    assert "runs all in fp32: nothing was quantized" in str(a_result([a_trial(1, 0.0, "abcd")], Size()))
    missed = replace(a_trial(1, 0.2), met=False)
    assert "does NOT meet" in str(a_result([missed], Size(), met=False))
    assert "(but is not confirmed on other data)" in str(a_result([a_trial(1, 0.0)], Size(), met=False))
    assert str(a_result([], Size())) == "no trial has a score (criterion met); fp32 scores 0.9"


def test_without_a_model_there_is_nothing_to_save() -> None:
    with pytest.raises(ModelError, match="there is no best model to save"):
        a_result([], Size()).save("nothing.onnx")
    assert issubclass(ModelError, ValueError) and issubclass(ModelError, QuaverError)


TRACEBACK = "Traceback (most recent call last):\n  File ...\nValueError: <script>labels & more</script>\n"


def test_results_and_trials_show_themselves_in_a_line() -> None:
    trials = [a_trial(1, 0.002, "a", seconds=2.0), a_trial(2, None, error=TRACEBACK)]
    assert repr(trials[0]) == "<trial 1: score 0.898, loss 0.002, met, 3 int8 / 1 fp32 ops>"
    assert repr(trials[1]) == "<trial 2: failed, 4 int8 / 0 fp32 ops>"
    assert repr(a_result(trials, Size())) == (
        "<TuneResult: met, score 0.898 vs 0.9 in fp32, 3 int8 / 1 fp32 ops, trial 1 of 2 trials>"
    )
    assert repr(a_result(trials[:1], Size(), met=False)).startswith("<TuneResult: NOT met, score 0.898")
    assert repr(a_result([], Size())) == "<TuneResult: no scored trial in 0 trials, fp32 scores 0.9>"


def test_a_notebook_shows_verdict_scores_and_trials_and_obeys_none_of_them() -> None:
    trials = [a_trial(1, 0.002, "a"), a_trial(2, None, error=TRACEBACK)]
    shown = a_result(trials, Size(), workspace=Path("a<b>"))._repr_html_()
    assert "trial 1 meets the criterion" in shown and "a&lt;b&gt;" in shown
    assert "<td>fp32</td><td>0.9</td>" in shown
    assert "<td>1 (best)</td><td>0.898</td><td>0.20%</td><td>met</td><td>3 int8 / 1 fp32</td>" in shown
    assert "<td>ValueError: &lt;script&gt;labels &amp; more&lt;/script&gt;</td>" in shown
    assert "<script>" not in shown and "more; <code>" not in shown
    ElementTree.fromstring(f"<div>{shown}</div>")  # every tag that is opened is closed
    absolute = a_result(trials, Size(), criterion=Criterion(None, 0.5))._repr_html_()
    assert "<td>0.002</td>" in absolute


def test_a_notebook_is_not_flooded() -> None:
    shown = a_result([a_trial(number, 0.1) for number in range(1, 101)], Size())._repr_html_()
    assert shown.count("<tr>") == 22 and "... and 80 more" in shown


def test_a_table_has_a_row_for_each_trial() -> None:
    trials = [
        a_trial(1, 0.002, "a", seconds=2.0, build_seconds=0.5, model_size=10, measured={"latency": 0.4}),
        a_trial(2, None, error=TRACEBACK),
        Trial(3, QuantConfig({"a": OpConfig(Precision("int4"))}), TrialState.COMPLETE, 0.9, 0.0, True),
    ]
    table = a_result(trials, Size()).to_dataframe()
    assert list(table.columns) == [
        "number", "score", "loss", "met", "state", "int4_ops", "int8_ops", "fp32_ops", "seconds", "build_seconds",
        "size", "latency", "error",
    ]  # fmt: skip
    assert table["number"].tolist() == [1, 2, 3] and table["state"].tolist() == ["complete", "failed", "complete"]
    first = table.loc[0, ["score", "loss", "int8_ops", "fp32_ops", "seconds", "build_seconds", "size", "latency"]]
    assert first.tolist() == [0.898, 0.002, 3, 1, 2.0, 0.5, 10, 0.4]
    assert table["int4_ops"].tolist() == [0, 0, 1] and table["latency"].isna().tolist() == [False, True, True]
    assert table["error"].tolist() == ["", "ValueError: <script>labels & more</script>", ""]
    assert len(a_result([], Size()).to_dataframe()) == 0


def test_a_table_without_pandas_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingPackageError, match="pip install pandas"):
        a_result([], Size()).to_dataframe()
