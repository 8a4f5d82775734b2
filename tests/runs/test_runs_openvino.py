"""Whole runs in OpenVINO."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import openvino
import pytest
from networks import Closeness, chain, inputs

import quaver
from quaver.adapters import load_unmodified
from quaver.adapters.openvino.execution_graph import kernels_of
from quaver.command.main import main
from quaver.errors import HistoryError
from quaver.history import read_snapshot
from quaver.processors import has_bf16

needs_bf16 = pytest.mark.skipif(not has_bf16(), reason="the processor has neither AVX512-BF16 nor AMX")


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


# One op in each precision; the marks of fp32 ops among bf16 ones are then needed, too.
EACH_PRECISION = {"layer.0/Gemm": "int8", "layer.1/Gemm": "bf16", "layer.2/Gemm": "fp32"}


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> quaver.TuneResult:
    model = chain(3)
    return quaver.fit(
        model,
        calib_dataloader=[inputs(16)],
        eval_func=Closeness(model),
        runtime="openvino",
        # int8 weights alone would run in bf16.
        op_name_dict={**EACH_PRECISION, "layer.0/Gemm": {"activation": {"dtype": ["int8"], "mode": "static"}}},
        relative=0.05,
        workspace=tmp_path_factory.mktemp("runs") / "mixed",
        timing_cache=False,
        verbose=0,
    )


@needs_bf16
def test_a_result_with_bf16_says_what_it_needs_and_gives_without(mixed: quaver.TuneResult) -> None:
    assert mixed.best is not None and mixed.portability is not None
    assert {name: choice.precision for name, choice in mixed.best.config.items()} == EACH_PRECISION
    part = mixed.portability.bf16
    assert part is not None and part.ops == 1
    assert part.error is not None and part.fp32_error is not None and 0 < part.fp32_error != part.error > 0
    assert part.latency is not None and part.fp32_latency is not None
    assert "1 op runs in bf16, which needs AVX512-BF16 or AMX" in str(mixed)
    assert 'OpenVINO\'s setting {"INFERENCE_PRECISION_HINT": "bf16"}; without it: ' in str(mixed)


@needs_bf16
def test_a_file_with_bf16_says_so_and_runs_so(
    mixed: quaver.TuneResult, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = mixed.save(tmp_path / "model.onnx")
    provenance = quaver.read_provenance(path)
    assert provenance.inference_precision == "bf16"
    assert provenance.fp32_nodes[0] == "layer.2/Gemm"
    assert provenance.is_unchanged
    assert main(["show", str(path)]) == 0
    assert "float ops run in bf16, except for" in capsys.readouterr().out
    session = load_unmodified(path, 1, runtime="openvino").session
    precisions = [kernel.precision for kernel in kernels_of(session.compiled) if kernel.kind == "FullyConnected"]
    assert precisions == [*EACH_PRECISION.values()]
    feed = {"x": inputs(4)}
    assert np.array_equal(session.run(None, feed)[0], mixed.model(feed))
    elsewhere = load_unmodified(path, 1)(feed)  # ONNX Runtime knows no bf16
    assert np.linalg.norm(elsewhere - mixed.model(feed)) < 0.02 * np.linalg.norm(elsewhere)


@needs_bf16
def test_a_file_of_openvino_keeps_each_precision(mixed: quaver.TuneResult, tmp_path: Path) -> None:
    path = mixed.save(tmp_path / "model.xml")
    compiled = openvino.Core().compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "bf16"})
    precisions = [kernel.precision for kernel in kernels_of(compiled) if kernel.kind == "FullyConnected"]
    assert precisions == [*EACH_PRECISION.values()]


@needs_bf16
def test_a_trial_with_bf16_is_recovered_byte_for_byte(mixed: quaver.TuneResult, tmp_path: Path) -> None:
    assert mixed.best is not None
    recovered = quaver.recover(chain(3), mixed.history_path, mixed.best.number)
    paths = recovered.save(tmp_path / "recovered.onnx"), mixed.save(tmp_path / "saved.onnx")
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert recovered.sha256 == mixed.model.sha256 != quaver.recover(chain(3), mixed.history_path, 0).sha256
    again = read_snapshot(mixed.history_path).trial(mixed.best.number)
    assert again.config == mixed.best.config


@needs_bf16
def test_a_run_with_bf16_is_resumed(mixed: quaver.TuneResult) -> None:
    model = chain(3)
    resumed = quaver.fit(
        model, resume=mixed.history_path, eval_func=Closeness(model), calib_dataloader=[inputs(16)], verbose=0
    )
    assert resumed.best is not None and mixed.best is not None
    assert (resumed.best.number, resumed.best.config) == (mixed.best.number, mixed.best.config)


@needs_bf16
@pytest.mark.parametrize("strategy", ["auto", "mse"])
def test_bf16_is_a_trial_where_int8_fails(strategy: str, tmp_path: Path) -> None:
    model = chain(3)
    result = quaver.fit(
        model, calib_dataloader=[inputs(16)], eval_func=Closeness(model), runtime="openvino", strategy=strategy,
        relative=0.006, workspace=tmp_path, timing_cache=False, verbose=0, n_jobs=2 if strategy == "mse" else 1,
    )  # fmt: skip
    assert result.met and result.best is not None
    assert result.best.config.bf16_ops
