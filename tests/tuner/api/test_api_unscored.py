"""`fit` without eval_func: one model, chosen without labels, that nobody has evaluated."""

from __future__ import annotations

import pytest

import quaver
from quaver.demo.data import Accuracy, digits
from quaver.demo.run import MODEL
from quaver.history import read_snapshot
from quaver.insights.report.write import write_report


@pytest.fixture(scope="module")
def images():
    return digits()[0][:48]


@pytest.fixture(scope="module")
def workspace(images, tmp_path_factory):
    folder = tmp_path_factory.mktemp("unscored") / "run"
    quaver.fit(MODEL, calib_dataloader=images, workspace=folder, verbose=0)
    return folder


def resumed(workspace, **more):
    return quaver.fit(MODEL, resume=workspace, verbose=0, **more)


def test_the_result_says_that_nothing_was_evaluated(workspace):
    result = resumed(workspace)
    assert result.met is None and result.baseline is None and result.evaluations == 0
    assert result.best is not None and result.best.unscored and result.best.config.quantized_ops
    assert result.reason is quaver.StopReason.UNSCORED
    assert "not evaluated" in str(result) and "not evaluated" in repr(result)
    assert "not evaluated" in result._repr_html_()
    assert "latency" in result.best.measured


def test_the_model_can_be_saved_run_and_recovered_to_the_byte(workspace, images, tmp_path):
    result = resumed(workspace)
    path = result.save(tmp_path / "int8.onnx")
    again = quaver.recover(MODEL, workspace, result.best.number).save(tmp_path / "again.onnx")
    assert path.read_bytes() == again.read_bytes()
    assert result.model(images[:2]).shape == (2, 10)


def test_it_is_what_the_strategy_would_try_first(images, tmp_path):
    result = quaver.fit(
        MODEL,
        calib_dataloader=images,
        strategy="basic",
        workspace=tmp_path / "run",
        verbose=0,
        quant_format="QOperator",
    )
    assert not result.best.config.fp32_ops
    assert {pick.calibration for pick in result.best.config.values()} == {"minmax"}


def test_a_resumed_run_with_an_eval_func_scores_it_and_keeps_it(images, tmp_path):
    folder = tmp_path / "run"
    quaver.fit(MODEL, calib_dataloader=images, strategy="basic", workspace=folder, verbose=0)
    _, _, x, y = digits()
    result = resumed(folder, eval_func=Accuracy(x, y), calib_dataloader=images, max_trials=1)
    assert result.met and result.evaluations == 2
    assert [trial.unscored for trial in result.trials] == [True, False]
    assert result.trials[0].config == result.trials[1].config
    assert result.trials[0].model_hash == result.trials[1].model_hash


def test_the_history_holds_it_and_the_report_shows_it(workspace, tmp_path):
    snapshot = read_snapshot(workspace)
    assert snapshot.baseline.unscored and snapshot.baseline.score is None
    assert [trial.state for trial in snapshot.trials] == [quaver.TrialState.UNSCORED]
    page = tmp_path / "report.html"
    write_report(workspace, page)
    assert "Not evaluated" in page.read_text(encoding="utf-8")


def test_diagnosis_needs_no_score(images, tmp_path):
    result = quaver.fit(
        MODEL, calib_dataloader=images, strategy="basic", diagnosis=True, workspace=tmp_path / "run", verbose=0
    )
    assert result.diagnosis is not None and result.diagnosis.activations
