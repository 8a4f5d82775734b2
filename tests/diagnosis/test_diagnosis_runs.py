"""Diagnosis at the end of a run, of its trials, and of configurations."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import diagnosis_models as models
import numpy as np
import onnx
import pytest
from fake import FakeAdapter, FakeFloat

import quaver
from quaver.adapters import abilities
from quaver.api.subject import Subject
from quaver.diagnosis import read_histograms
from quaver.engine.event_base import Event, Stage
from quaver.engine.events import Diagnosed, Progressed
from quaver.engine.inspection.diagnose import DiagnosisOptions, examine
from quaver.engine.observers import silent
from quaver.space import TuningSpace

ONE_SCALE = {"Conv": {"weight": {"granularity": ["per_tensor"]}}}
FILES = {"activations_table.csv", "weights_table.csv", "layer_statistics.csv", "causes.txt", "histograms.npz"}


class Heard:
    def __init__(self) -> None:
        self.diagnoses: list[quaver.Diagnosis] = []
        self.done: list[int] = []

    def __call__(self, event: Event) -> None:
        match event:
            case Diagnosed(diagnosis):
                self.diagnoses.append(diagnosis)
            case Progressed(Stage.DIAGNOSING, done, _):
                self.done.append(done)


def score(model: Any) -> float:
    """How near the outputs are to what the float model gives for a few samples."""
    outputs = model(models.images(8, seed=5))
    return float(1 - np.abs(outputs - EXPECTED).mean() / np.abs(EXPECTED).mean())


def _expected() -> Any:
    from quaver.adapters import AdapterOptions, load_model

    adapter = load_model(models.outlying_output_channel(), AdapterOptions(threads=1))
    outputs = adapter.assemble(None)(models.images(8, seed=5))
    adapter.close()
    return outputs


EXPECTED = _expected()


def tuned(folder: Path, data: Any = None, **settings: Any) -> quaver.TuneResult:
    given = {"relative": 0.1, "strategy": "basic", "threads": 1, "op_type_dict": ONE_SCALE, **settings}
    return quaver.fit(
        models.outlying_output_channel(),
        calib_dataloader=models.images() if data is None else data,
        eval_func=score,
        **({} if "resume" in settings else {"workspace": folder}),
        **given,
    )


def test_a_run_with_diagnosis_leaves_its_tables_in_the_workspace(tmp_path: Path, capfd: Any) -> None:
    heard = Heard()
    result = tuned(tmp_path / "run", diagnosis=True, observer=heard)
    assert "Weights summary" in capfd.readouterr().out
    assert {path.name for path in (tmp_path / "run").iterdir()} >= FILES
    assert result.diagnosis is not None and heard.diagnoses == [result.diagnosis] and heard.done[-1] == 64
    # The best trial runs the culprit in fp32; the tables show why it had to go.
    assert result.met and result.best is not None and result.best.config.fp32_ops == ("second",)
    assert result.diagnosis.precisions == {"first": "int8", "second": "int8"}
    assert [cause.op for cause in result.diagnosis.causes if cause.kind != "slower"] == ["second"]
    assert "output channel 5" in (tmp_path / "run" / "quaver.log").read_text()


def test_a_run_without_diagnosis_leaves_no_tables(tmp_path: Path) -> None:
    result = tuned(tmp_path / "run", max_trials=1)
    assert result.diagnosis is None and not FILES & {path.name for path in (tmp_path / "run").iterdir()}


def test_a_quiet_run_prints_no_tables(tmp_path: Path, capfd: Any) -> None:
    assert tuned(tmp_path / "run", diagnosis=True, max_trials=1, verbose=0).diagnosis is not None
    assert capfd.readouterr().out == ""


def test_a_generator_is_used_completely(tmp_path: Path) -> None:
    result = tuned(tmp_path / "run", (batch for batch in np.split(models.images(), 8)), diagnosis=True, max_trials=1)
    assert result.diagnosis is not None and result.diagnosis.samples == len(models.images())


def test_a_failure_of_diagnosis_does_not_cost_the_run(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("quaver.diagnosis.diagnosis.Diagnosis.save", lambda self, folder: 1 / 0)
    result = tuned(tmp_path / "run", diagnosis=True, max_trials=1)
    assert result.best is not None and result.diagnosis is None
    assert "diagnosis failed; the result of the run is complete" in (tmp_path / "run" / "quaver.log").read_text()


def test_ctrl_c_in_diagnosis_does_not_cost_the_run(tmp_path: Path, monkeypatch: Any) -> None:
    def interrupted(*args: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("quaver.engine.inspection.diagnose.examine", interrupted)
    result = tuned(tmp_path / "run", diagnosis=True, max_trials=1)
    assert result.best is not None and result.diagnosis is None


def test_a_resumed_run_needs_data_for_diagnosis(tmp_path: Path) -> None:
    tuned(tmp_path / "run", max_trials=1)
    with pytest.raises(quaver.SettingsError, match="pass calib_dataloader"):
        quaver.fit(models.outlying_output_channel(), resume=tmp_path / "run", diagnosis=True, eval_func=score)
    result = tuned(tmp_path / "run", resume=tmp_path / "run", diagnosis=True, max_trials=1)
    assert result.diagnosis is not None and result.evaluations == 2


def test_trials_results_numbers_and_configurations_can_be_diagnosed(tmp_path: Path) -> None:
    result = tuned(tmp_path / "run")
    assert result.best is not None
    model, data, rest = models.outlying_output_channel(), models.images(), {"threads": 1, "timing": False}
    best = quaver.diagnose(model, result, data, **rest)
    assert best.precisions == {"first": "int8", "second": "fp32"} and not best.causes
    same = [
        quaver.diagnose(model, result.best, data, history=result.history_path, **rest),
        quaver.diagnose(model, result.best.number, data, history=result.workspace, **rest),
        quaver.diagnose(model, result.best.config, data, **rest),
        quaver.diagnose(model, result.best, iter([data]), history=result.history_path, **rest),
    ]
    assert all(found.precisions == best.precisions for found in same)
    assert all(found.activations == best.activations for found in same)
    with pytest.raises(quaver.SettingsError, match="the result has no best trial to diagnose"):
        quaver.diagnose(model, replace(result, best=None), data)
    first = quaver.diagnose(model, 1, data, history=result.workspace, **rest)
    assert [cause.op for cause in first.causes] == ["second"]
    assert best.rules == {} and best.fallback == ("second",)


def test_ambiguous_and_invalid_arguments_are_refused() -> None:
    model, data = models.chain(), models.images()
    with pytest.raises(quaver.SettingsError, match="calib_dataloader is needed"):
        quaver.diagnose(model)
    with pytest.raises(quaver.SettingsError, match="trial 3 of which run"):
        quaver.diagnose(model, 3, data)
    strange = quaver.QuantConfig({"nowhere": quaver.OpConfig(quaver.INT8)})
    with pytest.raises(quaver.SettingsError, match="belongs to another model"):
        quaver.diagnose(model, strange, data)
    with pytest.raises(quaver.SettingsError, match="diagnose has no keyword 'thread'; did you mean 'threads'"):
        quaver.diagnose(model, None, data, thread=1)
    with pytest.raises(quaver.SettingsError, match="no keyword 'strategy'; it has: model, quantized, calib"):
        quaver.diagnose(model, None, data, strategy="nonsense", resume="/nowhere")
    with pytest.raises(quaver.SettingsError, match="`threads` must be a whole number"):
        quaver.diagnose(model, None, data, threads=-1)
    with pytest.raises(quaver.SettingsError, match="`op_name_dict` must be a mapping"):
        quaver.diagnose(model, None, data, op_name_dict=["first"])
    with pytest.raises(quaver.SettingsError, match="`layer_metrics` must hold functions by name"):
        quaver.diagnose(model, None, data, layer_metrics={"worst": 1})
    with pytest.raises(quaver.SettingsError, match="a quantized model, or a history"):
        quaver.diagnose(model, "int8.onnx", data, history="/nowhere")
    with pytest.raises(quaver.HistoryError, match="there is no snapshot at /nowhere"):
        quaver.diagnose(model, None, data, history="/nowhere")
    with pytest.raises(quaver.CalibrationError, match="gave no samples"):
        quaver.diagnose(model, None, [])


def test_paths_may_begin_with_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    onnx.save(models.outlying_output_channel(), tmp_path / "model.onnx")
    tuned(tmp_path / "run", max_trials=1)
    found = quaver.diagnose(
        "~/model.onnx", 1, models.images(), history="~/run", workspace="~/tables", timing=False, threads=1
    )
    assert found.causes and {path.name for path in (tmp_path / "tables").iterdir()} >= FILES
    assert found.save("~/again")["causes.txt"] == tmp_path / "again" / "causes.txt"
    assert set(read_histograms("~/again").weights) == {"first", "second"}


def test_rules_of_a_run_hold_also_if_they_were_given_as_objects(tmp_path: Path) -> None:
    rules = {"Conv": quaver.OpConfig(quaver.INT8, "minmax", "per_tensor")}
    result = tuned(tmp_path / "run", max_trials=1, op_type_dict=rules)
    (cause,) = quaver.diagnose(
        models.outlying_output_channel(), 1, models.images(), history=result.workspace, timing=False, threads=1
    ).causes
    assert not cause.rules and cause.advice.startswith("Change your rules: ")


def test_rules_of_a_run_that_cannot_be_applied_are_skipped_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Version 0.1.0 recorded a rule that was given as an object in words."""
    result = tuned(tmp_path / "run", max_trials=1)
    monkeypatch.setattr(Subject, "settings", {"op_type_dict": {"Conv": "int8 minmax per_tensor asym"}})
    found = quaver.diagnose(
        models.outlying_output_channel(), 1, models.images(), history=result.workspace, timing=False, threads=1
    )
    assert found.rules == {"second": {"weight": {"granularity": ["per_channel"]}}}
    assert "the rules of the run cannot be applied" in caplog.text


@pytest.mark.parametrize("batches", [[64], [1] * 64, [3, 61], [40, 24]])
def test_figures_do_not_depend_on_how_samples_are_batched(batches: list[int]) -> None:
    parts = np.split(models.images(), np.cumsum(batches)[:-1])
    found = quaver.diagnose(models.chain(), None, parts, threads=1, timing=False)
    whole = quaver.diagnose(models.chain(), None, models.images(), threads=1, timing=False)
    for row, other in zip(found.layers, whole.layers, strict=True):
        assert row.local == pytest.approx(other.local, rel=1e-5, abs=1e-9)
        assert row.cumulative == pytest.approx(other.cumulative, rel=1e-5, abs=1e-9)
    assert found.activations == pytest.approx(whole.activations)


def test_the_number_of_samples_can_be_limited() -> None:
    assert quaver.diagnose(models.chain(), None, models.images(), samples=5, threads=1, timing=False).samples == 5


def test_an_adapter_without_inspection_still_gives_tables() -> None:
    float_model = FakeFloat({"a": 0.1, "b": 0.0})
    adapter = FakeAdapter(float_model)
    adapter.calibrate(np.zeros((4, 2), np.float32))
    config = TuningSpace(float_model.ops).default_config()
    found = examine(adapter, abilities.inspect_quantized(adapter, config), config, None, DiagnosisOptions(), silent)
    assert {row.op: row.mse for row in found.activations} == {"a": pytest.approx(0.01), "b": pytest.approx(0.01)}
    assert not found.weights and found.precisions == {"a": "int8", "b": "int8"}
    with pytest.raises(quaver.SettingsError, match="fake cannot inspect a quantized file"):
        abilities.inspect_quantized(adapter, "int8.fake")
    assert not found.causes
