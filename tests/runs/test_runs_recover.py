"""From the float model to the best one, and back to any trial from the snapshot alone."""

from __future__ import annotations

import gc
import hashlib
import pickle
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from networks import Closeness, chain, inputs
from torn import without_the_end_of_the_last_trial

import quaver
from quaver import HistoryError, ModelError, StopReason, TuneResult
from quaver.history import History
from quaver.history.frames import MAGIC, PICKLED

MODEL = chain()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("run")
    onnx.save(MODEL, path / "model.onnx")
    return path


@pytest.fixture(scope="module")
def result(folder: Path) -> TuneResult:
    """A run with many trials, most of which do not meet the criterion."""
    return quaver.fit(
        folder / "model.onnx",
        calib_dataloader=inputs(),
        eval_func=Closeness(MODEL),
        strategy="basic",
        relative=0.012,
        objective="size",
        threads=1,
        workspace=folder / "run",
        report=False,
    )


def test_a_run_finds_a_model_within_the_criterion(result: TuneResult) -> None:
    assert result.met and result.reason is StopReason.MET and result.best is not None
    assert 0.98 < result.best.score < result.baseline  # type: ignore[operator]
    assert len(result.trials) > 5 and result.best.config.int8_ops and result.best.config.fp32_ops
    assert result.evaluations == 1 + len(result.trials)
    assert str(result).startswith(f"trial {result.best.number} meets the criterion (loss of at most 1.20%)")


def test_the_best_model_is_callable_and_scores_as_recorded(result: TuneResult) -> None:
    assert result.model is not None and result.best is not None
    assert Closeness(MODEL)(result.model) == result.best.score


def test_the_best_model_is_saved_recovered_and_hashed_alike(result: TuneResult, tmp_path: Path) -> None:
    assert result.best is not None and result.model_path is not None
    saved = result.save(tmp_path / "deep" / "model-int8.onnx").read_bytes()
    recovered = quaver.recover(MODEL, result.history_path, result.best.number)
    again = recovered.save(tmp_path / "again.onnx").read_bytes()
    assert saved == result.model_path.read_bytes() == again == recovered.SerializeToString()
    scored = saved[: result.best.model_size]  # provenance stands behind the model
    assert hashlib.sha256(scored).hexdigest() == result.best.model_hash == recovered.sha256
    onnx.checker.check_model(onnx.load_from_string(saved))


def test_every_trial_is_recovered_with_its_hash_and_its_score(result: TuneResult) -> None:
    eval_func = Closeness(MODEL)
    for trial in result.trials:
        recovered = quaver.recover(MODEL, result.workspace, trial.number, threads=1)
        assert recovered.sha256 == trial.model_hash
        assert eval_func(recovered) == trial.score


def test_trial_0_is_the_float_model(result: TuneResult) -> None:
    recovered = quaver.recover(MODEL, result.history_path, 0, threads=1)
    baseline = quaver.read_snapshot(result.history_path).baseline
    assert baseline is not None and recovered.sha256 == baseline.model_hash
    assert Closeness(MODEL)(recovered) == result.baseline
    kinds = {node.op_type for node in onnx.load_from_string(recovered.SerializeToString()).graph.node}
    assert kinds == {"Gemm", "Relu"}


def test_the_float_model_may_come_in_any_form(result: TuneResult, folder: Path) -> None:
    forms = [folder / "model.onnx", str(folder / "model.onnx"), MODEL, MODEL.SerializeToString()]
    assert len({quaver.recover(form, result.workspace, 1).sha256 for form in forms}) == 1


def test_recovering_needs_neither_the_workspace_nor_its_other_files(result: TuneResult, tmp_path: Path) -> None:
    moved = shutil.copy(result.history_path, tmp_path / "anything.bin")
    assert quaver.recover(MODEL, moved, 2).sha256 == result.trials[1].model_hash


def test_recovering_leaves_no_files_behind(result: TuneResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    recovered = quaver.recover(MODEL, result.workspace, 1)
    recovered(inputs())
    assert list(tmp_path.iterdir())  # while it is needed
    del recovered
    gc.collect()
    assert list(tmp_path.iterdir()) == []


def test_a_model_that_is_not_recovered_leaves_no_files_behind_either(
    result: TuneResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(HistoryError, match="belongs to another model") as caught:
        quaver.recover(chain(seed=5), result.workspace, 1)
    assert list(tmp_path.iterdir()) == []
    assert caught.tb is not None  # which keeps all that was made on the way alive


def test_a_recovered_model_can_be_closed_and_used_again(result: TuneResult, tmp_path: Path) -> None:
    recovered = quaver.recover(MODEL, result.workspace, 1)
    expected = recovered(inputs(8))
    recovered.close()
    gc.collect()
    assert np.array_equal(recovered(inputs(8)), expected)
    assert len(recovered.save(tmp_path / "model.onnx").read_bytes()) == recovered.size


def test_the_model_of_a_run_and_the_users_file_are_not_changed(result: TuneResult, folder: Path) -> None:
    assert (folder / "model.onnx").read_bytes() == MODEL.SerializeToString() == chain().SerializeToString()


def test_another_model_is_refused(result: TuneResult) -> None:
    for other in (chain(seed=5), chain(layers=5)):
        with pytest.raises(HistoryError, match=r"belongs to another model: .* Pass the float model that the run"):
            quaver.recover(other, result.history_path, 1)
    with pytest.raises(ModelError, match="no model"):
        quaver.recover("nowhere.onnx", result.history_path, 1)


def test_the_quantized_model_is_not_taken_for_the_float_one(result: TuneResult) -> None:
    assert result.model_path is not None
    with pytest.raises(ModelError, match="quantized already"):
        quaver.recover(result.model_path, result.history_path, 1)


@pytest.mark.parametrize("number", [99, -1, "1", None, 1.5])
def test_a_trial_that_is_not_there_is_named_with_those_that_are(result: TuneResult, number: Any) -> None:
    with pytest.raises(HistoryError, match=rf"has no trial {number!r}; it has 0 to {len(result.trials)}"):
        quaver.recover(MODEL, result.history_path, number)


def test_a_torn_file_costs_its_last_trial_alone(result: TuneResult, tmp_path: Path) -> None:
    torn = tmp_path / "history.snapshot"
    torn.write_bytes(without_the_end_of_the_last_trial(result.history_path))
    last = len(result.trials)
    assert quaver.recover(MODEL, torn, last - 1).sha256 == result.trials[-2].model_hash
    with pytest.raises(HistoryError, match=rf"has no trial {last}; it has 0 to {last - 1}"):
        quaver.recover(MODEL, tmp_path, last)


class Hostile:
    """Runs a command when it is unpickled by anybody careless."""

    def __init__(self, proof: Path) -> None:
        self._proof = proof

    def __reduce__(self) -> Any:
        return Path.touch, (self._proof,)


def test_a_hostile_file_is_refused_and_not_executed(result: TuneResult, tmp_path: Path) -> None:
    proof = tmp_path / "proof"
    payload = pickle.dumps({"kind": "header", "schema": Hostile(proof)}, protocol=4)
    pickle.loads(payload)
    assert proof.exists()  # so it would work
    proof.unlink()
    whole = result.history_path.read_bytes()
    for content in (payload, MAGIC + PICKLED.frame(payload), whole + PICKLED.frame(payload)):
        path = tmp_path / "history.snapshot"
        path.write_bytes(content)
        with pytest.raises(HistoryError, match=r"its first line is different|is refused"):
            quaver.recover(MODEL, path, 1)
        with pytest.raises(HistoryError, match=r"its first line is different|is refused"):
            quaver.fit(MODEL, eval_func=Closeness(MODEL), strategy="basic", resume=path)
        assert path.read_bytes() == content
    assert not proof.exists()


@pytest.mark.parametrize("content", [b"", b"PK\3\4 not a snapshot, but long enough to be one", b"quaver hist"])
def test_a_file_that_is_no_snapshot_is_named(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "history.snapshot"
    path.write_bytes(content)
    with pytest.raises(HistoryError, match=str(path)):
        quaver.recover(MODEL, path, 1)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match="holds no history"):
        quaver.recover(MODEL, tmp_path, 1)
    with pytest.raises(HistoryError, match="there is no snapshot at"):
        quaver.recover(MODEL, tmp_path / "nowhere", 1)


def test_bytes_that_come_out_differently_are_an_error_that_names_the_versions(
    result: TuneResult, tmp_path: Path
) -> None:
    snapshot = quaver.read_snapshot(result.history_path)
    with History.create(tmp_path / "h") as history:
        history.begin(snapshot.header)
        history.start_run({}, {"onnx": "0.1"})
        history.append(replace(snapshot.trials[0], model_hash="ab" * 32))
        history.start_run({}, {"onnx": "0.2"})
    here = f"here are quaver {quaver.__version__}, onnx {onnx.__version__}"
    with pytest.raises(HistoryError, match=rf"trial 1 cannot be rebuilt .* used onnx 0\.1; {here}"):
        quaver.recover(MODEL, tmp_path / "h", 1)


def test_a_recovered_model_runs_in_every_way_a_model_can(result: TuneResult) -> None:
    model: Any = quaver.recover(MODEL, result.history_path, 1)
    x = inputs(8)
    expected = model(x)
    assert expected.shape == (8, 24)
    for outputs in (model(x=x), model({"x": x}), model.run({"x": x}), model.session.run(None, {"x": x})[0]):
        assert np.array_equal(outputs, expected)
    assert model.model.graph.node[0].op_type == "QuantizeLinear"
