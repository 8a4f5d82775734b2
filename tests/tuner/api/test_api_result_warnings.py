"""Warnings appear in the result, its notebook form, its JSON, the command line and the page."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake import FakeAdapter, FakeFloat, FakeModel

import quaver
from quaver import TuneResult
from quaver.adapters import registry
from quaver.command import main
from quaver.command.json_records import result_to_dict
from quaver.engine.run.finish import note_warning, noted_warnings
from quaver.engine.scoring.judge import judge_snapshot
from quaver.history import History
from quaver.insights import FollowedRun, write_report
from quaver.insights.data.summary import Verdict, verdict

DATA = np.zeros((4, 2), np.float32)


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(registry, "adapters", lambda: {"fake": FakeAdapter})
    with warnings.catch_warnings(action="ignore"):
        yield


def tune(folder: Path, **settings: Any) -> TuneResult:
    arguments = {"eval_func": lambda model: model.quality, "workspace": folder, "verbose": 0, **settings}
    model = arguments.pop("model", FakeFloat({"a": 0.0, "b": 0.0}))
    return quaver.fit(model, calib_dataloader=DATA, **arguments)


def at_latency(folder: Path, ratio: float, spread: float = 0.01) -> TuneResult:
    """Tune, and let the clock say what the test wants: no machine is slow on demand."""
    first = tune(folder)
    assert first.best is not None
    with History.resume(folder) as history:
        figures = {"latency": ratio, "latency_ms": 4.2, "latency_spread": spread}
        history.measure(first.best.number, figures)
    with warnings.catch_warnings(action="ignore"):
        return quaver.fit(
            FakeFloat({"a": 0.0, "b": 0.0}), eval_func=lambda model: model.quality, resume=folder, verbose=0
        )


def page_of(folder: Path) -> Verdict:
    data = FollowedRun(folder).poll()
    assert data is not None
    return verdict(data)


def test_a_slower_model_is_never_a_plain_success(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    result = at_latency(folder, 1.12)
    assert result.met and result.benefit is not None and not result.benefit.is_gain
    (warning,) = result.warnings
    assert "is slower than fp32: 1.12x fp32 latency (4.2 ms vs 3.75 ms, ±1%)" in warning
    assert "Deploy the float model on this machine" in warning
    first, second, *_ = str(result).splitlines()
    assert "but is slower than fp32 (1.12x latency)" in first and second == f"WARNING: {warning}"
    assert "met but slower than fp32" in repr(result)
    html = result._repr_html_()
    assert "#b3450b" in html and "#00734f" not in html and "1.12x fp32 latency" in html
    assert result_to_dict(result)["warnings"] == [warning] and result_to_dict(result)["benefit"]["is_gain"] is False
    shown = page_of(folder)
    assert shown.kind == "warned" and "but the model is slower than fp32 (1.12x latency)" in shown.headline
    assert shown.warnings == result.warnings
    report = write_report(folder, tmp_path / "report.html").read_text()
    assert "but the model is slower than fp32" in report and "Deploy the float model on this machine" in report
    assert main.main(["history", str(folder)]) == 0
    assert f"WARNING: {warning}" in capsys.readouterr().out
    assert main.main(["show", str(folder), "best", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["warnings"] == [warning]


def test_within_the_error_bar_it_is_not_called_slower(tmp_path: Path) -> None:
    result = at_latency(tmp_path / "run", 0.99, spread=0.03)
    assert "is not faster than fp32: 0.99x fp32 latency (4.2 ms vs 4.24 ms, ±3%)" in result.warnings[0]
    assert "not faster than fp32" in page_of(tmp_path / "run").headline


@pytest.mark.parametrize(
    "times, sentence",
    [
        ({"x": 1.3, "y": 1.01}, "other configurations were timed, and none is faster than fp32."),
        ({"x": 0.7, "y": 1.01}, "other configurations were timed; 1 is faster, but no trial of these meets"),
    ],
)
def test_a_slower_model_tells_how_many_others_were_timed(
    times: dict[str, float], sentence: str, tmp_path: Path
) -> None:
    first = at_latency(tmp_path / "run", 1.12)
    assert first.best is not None
    with History.resume(tmp_path / "run") as history:
        timed = {**dict.fromkeys(history.notes["probe.speed"], 1.05), **times, first.best.config.fingerprint: 1.12}
        history.extend_note("probe.speed", timed)
    result = quaver.fit(
        FakeFloat({"a": 0.0, "b": 0.0}), eval_func=lambda model: model.quality, resume=tmp_path / "run", verbose=0
    )
    assert f"{len(timed) - 1} {sentence}" in result.warnings[0] and "Deploy the float model" in result.warnings[0]


def test_a_faster_model_has_no_warnings(tmp_path: Path) -> None:
    result = at_latency(tmp_path / "run", 0.5)
    assert result.warnings == () and "WARNING" not in str(result) and "#00734f" in result._repr_html_()
    shown = page_of(tmp_path / "run")
    assert shown.kind == "met" and shown.warnings == ()


def test_a_larger_file_is_no_success_where_size_is_the_objective(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeModel, "size", property(lambda model: 1000 if model.config is None else 1250))
    result = tune(tmp_path / "run", objective="size")
    assert "is larger than fp32: 1.25x fp32 size (1.25 KB vs 1 KB)" in result.warnings[0]
    assert "larger than fp32 (1.25x size)" in page_of(tmp_path / "run").headline


def test_where_nothing_is_quantized_the_float_model_is_advised(tmp_path: Path) -> None:
    result = tune(tmp_path / "run", model=FakeFloat({"a": 0.5, "b": 0.5}), strategy="basic")
    assert result.met and result.best is not None and not result.best.config.quantized_ops
    (warning,) = result.warnings
    assert warning.endswith("runs every op in fp32: nothing was quantized. Deploy the float model")
    assert page_of(tmp_path / "run").warnings == result.warnings


def test_failures_of_every_quantized_trial_are_repeated_with_the_first_error(tmp_path: Path) -> None:
    def score(model: FakeModel) -> float:
        if model.config is not None:
            raise ValueError("labels.npy has 10 rows, and 12 are needed")
        return 0.9

    with pytest.warns(UserWarning, match=r"The first error, in trial 1: ValueError: labels\.npy"):
        result = tune(tmp_path / "run", eval_func=score)
    assert result.best is None and len(result.warnings) == 1
    assert result.warnings[0].endswith(
        "The first error, in trial 1: ValueError: labels.npy has 10 rows, and 12 are needed"
    )
    failed = sum(trial.failed for trial in result.trials)
    assert failed > 1 and f"WARNING: all {failed} quantized trials failed" in str(result)
    assert page_of(tmp_path / "run").warnings == result.warnings


def test_any_part_of_a_run_can_add_a_warning_and_withdraw_it(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    tune(folder, objective="int8_ops")
    with History.resume(folder) as history:
        note_warning(history, "kernels", "two kernels were\nnot found \x1b[31m")
        note_warning(history, "other", "x" * 5000)
    shown = page_of(folder)
    assert shown.warnings[0] == "two kernels were not found \\x1b[31m" and len(shown.warnings[1]) == 1000
    with History.resume(folder) as history:
        note_warning(history, "kernels", "")
        note_warning(history, "other", "")
    assert page_of(folder).warnings == ()
    assert noted_warnings({"warnings": [1]}) == noted_warnings({"warnings": {3: "x", "y": 4}}) == {}
    assert judge_snapshot(quaver.read_snapshot(folder)).met


def test_a_run_for_size_prints_the_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeModel, "size", property(lambda model: 4000 if model.config is None else 1000))
    result = tune(tmp_path / "run", objective="size")
    assert "size 0.25x fp32 (1 KB vs 4 KB)" in str(result).splitlines() and result.warnings == ()
    assert "size 0.25x" not in str(tune(tmp_path / "other", objective="int8_ops"))
