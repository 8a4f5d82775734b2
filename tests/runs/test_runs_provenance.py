"""A saved model says where it comes from, and all copies of a trial's model are the same file."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from networks import Closeness, chain, inputs

import quaver
from quaver import ModelError, TuneResult
from quaver.adapters.onnxrt.profile.kernels import INTEGER_KERNELS
from quaver.adapters.onnxrt.run import model as models
from quaver.command.main import main


def users_model() -> onnx.ModelProto:
    """A model of a user who has written something of their own into it."""
    model = chain()
    model.producer_name, model.producer_version = "pytorch", "2.9.1"
    onnx.helper.set_model_props(model, {"labels": "cat,dog", "owner": "vision team"})
    return model


MODEL = users_model()


def run(workspace: Path, model: Any = MODEL, **settings: Any) -> TuneResult:
    return quaver.fit(
        model,
        calib_dataloader=inputs(),
        eval_func=Closeness(MODEL),
        **{"strategy": "basic", "relative": 0.012, "objective": "size", "threads": 1, "report": False} | settings,
        workspace=workspace,
        verbose=0,
    )


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> TuneResult:
    return run(tmp_path_factory.mktemp("provenance") / "run")


def saved(result: TuneResult) -> Path:
    assert result.model_path is not None
    return result.model_path


def test_a_saved_model_says_where_it_comes_from(result: TuneResult) -> None:
    provenance = quaver.read_provenance(saved(result))
    snapshot = quaver.read_snapshot(result.history_path)
    assert result.best is not None and result.baseline is not None
    assert provenance.quaver == quaver.__version__
    assert provenance.float_model == snapshot.header.model_fingerprint
    assert provenance.config == result.best.config.fingerprint
    assert provenance.model == result.best.model_hash
    assert provenance.criterion == {"relative": 0.012}
    assert provenance.scores == {"score": result.best.score} and provenance.baseline == {"score": result.baseline}
    assert {"quaver": provenance.quaver, **provenance.versions} == snapshot.run.versions
    assert provenance.producer == "pytorch 2.9.1" and provenance.portable is True
    assert provenance.is_unchanged is True


def test_the_users_own_properties_survive_and_quaver_is_the_producer(result: TuneResult) -> None:
    model = onnx.load(saved(result))
    onnx.checker.check_model(model, full_check=True)
    assert (model.producer_name, model.producer_version) == ("quaver", quaver.__version__)
    properties = {entry.key: entry.value for entry in model.metadata_props}
    assert len(properties) == len(model.metadata_props)
    assert properties["labels"] == "cat,dog" and properties["owner"] == "vision team"
    assert json.loads(properties["quaver.criterion"]) == {"relative": 0.012}
    seen = ort.InferenceSession(saved(result), providers=["CPUExecutionProvider"]).get_modelmeta()
    assert seen.producer_name == "quaver" and seen.custom_metadata_map == properties


def test_two_equal_runs_give_the_same_file(result: TuneResult, tmp_path: Path) -> None:
    assert saved(run(tmp_path / "elsewhere")).read_bytes() == saved(result).read_bytes()


def test_all_copies_of_the_best_model_are_the_same_file(result: TuneResult, tmp_path: Path) -> None:
    assert result.best is not None and result.model is not None
    content = saved(result).read_bytes()
    recovered = quaver.recover(MODEL, result.history_path, result.best.number)
    assert result.save(tmp_path / "saved.onnx").read_bytes() == content
    assert recovered.save(tmp_path / "recovered.onnx").read_bytes() == content == recovered.SerializeToString()
    assert main(["recover", _written(tmp_path), str(result.workspace), str(result.best.number), "-o",
                 str(tmp_path / "by_command.onnx")]) == 0  # fmt: skip
    assert (tmp_path / "by_command.onnx").read_bytes() == content
    assert recovered.size == result.model.size == len(content) > result.best.model_size


def _written(folder: Path) -> str:
    onnx.save(MODEL, folder / "float.onnx")
    return str(folder / "float.onnx")


def test_the_hash_in_the_history_is_that_of_the_model_without_provenance(result: TuneResult, tmp_path: Path) -> None:
    assert result.best is not None and result.model is not None
    content = saved(result).read_bytes()
    scored = content[: result.best.model_size]
    assert hashlib.sha256(scored).hexdigest() == result.best.model_hash == result.model.sha256
    bare = onnx.load_from_string(scored)
    assert (bare.producer_name, bare.producer_version) == ("pytorch", "2.9.1")
    assert [entry.key for entry in bare.metadata_props] == ["labels", "owner"]


def test_every_trial_says_its_own_scores(result: TuneResult, tmp_path: Path) -> None:
    for trial in result.trials:
        path = quaver.recover(MODEL, result.workspace, trial.number).save(tmp_path / "trial.onnx")
        provenance = quaver.read_provenance(path)
        assert provenance.scores == {"score": trial.score} and provenance.is_unchanged
        assert provenance.config == trial.config.fingerprint


def test_a_changed_or_rewritten_file_is_told_apart(result: TuneResult, tmp_path: Path) -> None:
    content = bytearray(saved(result).read_bytes())
    weights = max(onnx.load(saved(result)).graph.initializer, key=lambda tensor: len(tensor.raw_data)).raw_data
    content[content.index(weights)] ^= 1
    (tmp_path / "changed.onnx").write_bytes(content)
    assert quaver.read_provenance(tmp_path / "changed.onnx").is_unchanged is False
    onnx.save(onnx.load(saved(result)), tmp_path / "rewritten.onnx")
    rewritten = quaver.read_provenance(tmp_path / "rewritten.onnx")
    assert rewritten.is_unchanged is None and rewritten.scores == quaver.read_provenance(saved(result)).scores


def test_without_provenance_the_file_is_the_model_that_was_scored(result: TuneResult, tmp_path: Path) -> None:
    bare = run(tmp_path / "run", provenance=False)
    assert bare.best is not None and result.best is not None
    assert hashlib.sha256(saved(bare).read_bytes()).hexdigest() == bare.best.model_hash == result.best.model_hash
    assert quaver.recover(MODEL, bare.workspace, bare.best.number).SerializeToString() == saved(bare).read_bytes()
    with pytest.raises(ModelError, match="does not say where it comes from"):
        quaver.read_provenance(saved(bare))


def test_a_run_without_eval_func_has_no_scores_to_say(tmp_path: Path) -> None:
    quantized = quaver.fit(MODEL, calib_dataloader=inputs(), workspace=tmp_path / "run", verbose=0, report=False)
    provenance = quaver.read_provenance(saved(quantized))
    assert not provenance.scores and not provenance.baseline and provenance.is_unchanged


def test_the_criterion_of_a_resumed_run_is_the_one_that_is_said(tmp_path: Path) -> None:
    run(tmp_path / "run", max_trials=2, relative=0.0001)
    resumed = quaver.fit(
        MODEL, resume=tmp_path / "run", eval_func=Closeness(MODEL), relative=0.4, max_trials=3, verbose=0
    )
    assert resumed.met and resumed.best is not None
    assert quaver.read_provenance(saved(resumed)).criterion == {"relative": 0.4}
    recovered = quaver.recover(MODEL, tmp_path / "run", resumed.best.number)
    assert recovered.SerializeToString() == saved(resumed).read_bytes()


def test_a_model_that_quaver_saved_can_be_tuned_and_says_the_new_run(result: TuneResult, tmp_path: Path) -> None:
    path = quaver.recover(MODEL, result.workspace, 0).save(tmp_path / "float.onnx")
    again = run(tmp_path / "run", path, relative=0.02)
    model = onnx.load(saved(again))
    keys = [entry.key for entry in model.metadata_props]
    assert len(set(keys)) == len(keys)
    provenance = quaver.read_provenance(saved(again))
    assert provenance.criterion == {"relative": 0.02} and provenance.producer == "pytorch 2.9.1"


def test_integer_operators_carry_it_too(tmp_path: Path) -> None:
    tuned = run(tmp_path / "run", quant_format="qoperator")
    assert tuned.best is not None
    recovered = quaver.recover(MODEL, tuned.workspace, tuned.best.number)
    content = saved(tuned).read_bytes()
    assert recovered.SerializeToString() == content and recovered.sha256 == tuned.best.model_hash
    assert recovered.size == len(content)
    model = onnx.load(saved(tuned))
    onnx.checker.check_model(model)
    assert {node.op_type for node in model.graph.node} & INTEGER_KERNELS
    properties = {entry.key: entry.value for entry in model.metadata_props}
    assert properties["labels"] == "cat,dog" and model.producer_name == "quaver"
    assert quaver.read_provenance(saved(tuned)).is_unchanged


def test_a_model_in_two_files_carries_it_and_is_copied_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models, "PROTOBUF_LIMIT", 1000)
    tuned = run(tmp_path / "run")
    assert tuned.best is not None and tuned.model is not None
    path = tuned.save(tmp_path / "a" / "model.onnx")
    again = quaver.recover(MODEL, tuned.workspace, tuned.best.number).save(tmp_path / "b" / "model.onnx")
    for name in ("model.onnx", "model.onnx.data"):
        assert (path.parent / name).read_bytes() == (again.parent / name).read_bytes()
    onnx.checker.check_model(path, full_check=True)
    provenance = quaver.read_provenance(path)
    assert provenance.scores == {"score": tuned.best.score} and provenance.is_unchanged is None
    moved = shutil.copy(path, tmp_path / "moved.onnx")  # without its weights
    assert quaver.read_provenance(moved).is_unchanged is None
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    batch = inputs()[:4]
    assert np.array_equal(session.run(None, {session.get_inputs()[0].name: batch})[0], tuned.model(batch))


def test_show_prints_it(result: TuneResult, capsys: pytest.CaptureFixture[str]) -> None:
    assert result.best is not None
    assert main(["show", str(saved(result))]) == 0
    said = capsys.readouterr().out
    assert f"built with quaver {quaver.__version__}, " in said and "float model made by pytorch 2.9.1" in said
    assert "criterion: relative = 0.012" in said and f"scores: score {result.best.score:.6g} (fp32: score 1" in said
    assert f"model sha256 {result.best.model_hash} (unchanged since it was scored)" in said
    assert main(["show", str(saved(result)), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["is_unchanged"] is True and told["criterion"] == {"relative": 0.012}
    assert told["config"] == result.best.config.fingerprint


def test_show_names_what_is_missing(result: TuneResult, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def refused(*arguments: str) -> str:
        assert main(["show", *arguments]) == 2
        return capsys.readouterr().err

    assert "does not say where it comes from" in refused(_written(tmp_path))
    assert "no model at" in refused(str(tmp_path / "nothing.onnx"))
    assert "pass the number of a trial of" in refused(str(result.workspace))
    (tmp_path / "damaged.onnx").write_bytes(saved(result).read_bytes()[:-40])
    assert "damaged" in refused(str(tmp_path / "damaged.onnx"))
    shutil.copy(result.history_path, tmp_path / "history.onnx")
    assert "quaver: " in refused(str(tmp_path / "history.onnx"))
