"""Whole runs in OpenVINO."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from networks import Closeness, chain, inputs

import quaver
from quaver.errors import HistoryError
from quaver.history import read_snapshot


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> quaver.TuneResult:
    model = chain(3)
    folder = tmp_path_factory.mktemp("runs") / "openvino"
    return quaver.fit(
        model,
        calib_dataloader=[inputs(16)],
        eval_func=Closeness(model),
        runtime="openvino",
        strategy="mse",
        relative=0.05,
        workspace=folder,
        timing_cache=False,
        verbose=0,
    )


def test_a_run_is_scored_in_openvino_and_records_it(run: quaver.TuneResult) -> None:
    assert run.met
    assert run.model.runtime.name == "openvino"
    snapshot = read_snapshot(run.history_path)
    assert snapshot.run.settings["runtime"] == "openvino"
    assert snapshot.header.adapter == "openvino"
    assert "openvino" in snapshot.run.versions


def test_a_trial_is_recovered_byte_for_byte(run: quaver.TuneResult) -> None:
    assert run.best is not None
    recovered = quaver.recover(chain(3), run.history_path, run.best.number)
    assert recovered.sha256 == run.model.sha256
    assert np.array_equal(recovered(inputs(4)), run.model(inputs(4)))


def test_a_resumed_run_stays_in_openvino(run: quaver.TuneResult) -> None:
    model = chain(3)
    resumed = quaver.fit(
        model, resume=run.history_path, eval_func=Closeness(model), calib_dataloader=[inputs(16)], verbose=0
    )
    assert resumed.model.runtime.name == "openvino"
    assert len(resumed.trials) == len(run.trials)


def test_a_run_is_not_resumed_in_another_runtime(run: quaver.TuneResult) -> None:
    model = chain(3)
    with pytest.raises(HistoryError, match="belongs to a model of openvino, not of onnxrt"):
        quaver.fit(
            model, resume=run.history_path, runtime="onnxruntime", eval_func=Closeness(model),
            calib_dataloader=[inputs(16)], verbose=0,
        )  # fmt: skip


def test_profile_and_check_run_in_openvino(run: quaver.TuneResult, tmp_path: Path) -> None:
    model = chain(3)
    assert run.best is not None
    profile = quaver.profile(model, run.best.number, history=run.history_path, runs=5, threads=1)
    assert "OpenVINO's profiling information" in profile.how
    path = run.save(tmp_path / "model.onnx")
    checked = quaver.check(model, path, Closeness(model), relative=0.05, runtime="openvino")
    assert str(checked).startswith("met")
