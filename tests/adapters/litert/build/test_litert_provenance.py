"""Provenance in a .tflite: real metadata in front of the model, which stays as it was scored."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import litert_models as models
import numpy as np
import pytest
import tensorflow as tf
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter

import quaver
from quaver.adapters.litert.build.provenance import NAME, head, read_provenance, split
from quaver.adapters.litert.load import graph as graphs
from quaver.command.main import main

PROPERTIES = {"quaver.version": "1.2.3", "quaver.scores": '{"score": 0.5}'}
SETTINGS: dict[str, Any] = {"calib_dataloader": models.digits()[0][:64], "eval_func": models.accuracy, "threads": 1}


@pytest.fixture(scope="module")
def tuned(float_tflite: Path, tmp_path_factory: pytest.TempPathFactory) -> quaver.TuneResult:
    workspace = tmp_path_factory.mktemp("provenance") / "run"
    return quaver.fit(
        float_tflite, **SETTINGS, strategy="basic", objective="size", workspace=workspace, verbose=0, report=False
    )


def saved(result: quaver.TuneResult) -> Path:
    assert result.model_path is not None
    return result.model_path


def test_a_saved_model_says_where_it_comes_from(tuned: quaver.TuneResult) -> None:
    provenance = quaver.read_provenance(saved(tuned))
    assert tuned.best is not None
    assert provenance.scores == {"score": tuned.best.score} and provenance.baseline == {"score": tuned.baseline}
    assert provenance.config == tuned.best.config.fingerprint and provenance.criterion == {"relative": 0.01}
    assert provenance.model == tuned.best.model_hash and provenance.is_unchanged is True
    assert provenance.quaver == quaver.__version__ and "ai-edge-quantizer" in provenance.versions


def test_all_copies_are_the_same_file_and_so_is_that_of_an_equal_run(
    tuned: quaver.TuneResult, float_tflite: Path, tmp_path: Path
) -> None:
    assert tuned.best is not None and tuned.model is not None
    content = saved(tuned).read_bytes()
    recovered = quaver.recover(float_tflite, tuned.workspace, tuned.best.number)
    assert recovered.save(tmp_path / "recovered.tflite").read_bytes() == content == recovered.SerializeToString()
    assert tuned.save(tmp_path / "saved.tflite").read_bytes() == content
    assert recovered.size == tuned.model.size == len(content)
    again = quaver.fit(
        float_tflite, **SETTINGS, strategy="basic", objective="size", workspace=tmp_path / "again", verbose=0
    )
    assert saved(again).read_bytes() == content
    scored = content[-tuned.best.model_size :]
    assert hashlib.sha256(scored).hexdigest() == tuned.best.model_hash == tuned.model.sha256


def test_other_tools_see_the_metadata_and_run_the_model(tuned: quaver.TuneResult) -> None:
    content = saved(tuned).read_bytes()
    assert tuned.best is not None
    model = schema.ModelT.InitFromPackedBuf(content, 0)
    entries = {bytes(entry.name): entry.buffer for entry in model.metadata}
    properties = json.loads(bytes(model.buffers[entries[NAME]].data))
    assert properties["quaver.config"] == tuned.best.config.fingerprint
    images = models.digits()[2][:32]
    bare = Interpreter(model_content=content[-tuned.best.model_size :]).get_signature_runner()(image=images)
    for interpreter in (Interpreter(model_content=content), tf.lite.Interpreter(model_content=content)):
        given = interpreter.get_signature_runner()(image=images)
        assert all(np.array_equal(given[name], bare[name]) for name in bare)


def test_a_file_rewritten_by_another_tool_keeps_the_properties(tuned: quaver.TuneResult, tmp_path: Path) -> None:
    path = tmp_path / "rewritten.tflite"
    path.write_bytes(graphs.write(graphs.read(saved(tuned).read_bytes())))
    provenance = quaver.read_provenance(path)
    assert provenance.is_unchanged is None and provenance.scores == quaver.read_provenance(saved(tuned)).scores


def test_a_changed_weight_is_reported(tuned: quaver.TuneResult, tmp_path: Path) -> None:
    content = bytearray(saved(tuned).read_bytes())
    assert tuned.best is not None
    weights = max(
        (bytes(buffer.data) for buffer in graphs.read(bytes(content)).buffers if buffer.data is not None), key=len
    )
    content[content.index(weights)] ^= 1
    (tmp_path / "changed.tflite").write_bytes(content)
    assert quaver.read_provenance(tmp_path / "changed.tflite").is_unchanged is False


def test_other_metadata_stays_and_provenance_can_be_removed(float_tflite: Path) -> None:
    model = graphs.read(float_tflite.read_bytes())
    entry, buffer = schema.MetadataT(), schema.BufferT()
    entry.name, entry.buffer, buffer.data = b"TFLITE_METADATA", len(model.buffers), np.frombuffer(b"labels", np.uint8)
    model.metadata, model.buffers = [*(model.metadata or []), entry], [*model.buffers, buffer]
    content = graphs.write(model)
    front = head(content, PROPERTIES)
    assert len(front) % 64 == 0 and split(front + content) == (len(front), PROPERTIES) and split(content) == (0, {})
    seen = schema.ModelT.InitFromPackedBuf(front + content, 0)
    names = [bytes(item.name) for item in seen.metadata]
    assert names[-2:] == [b"TFLITE_METADATA", NAME]
    assert bytes(seen.buffers[seen.metadata[-2].buffer].data) == b"labels"
    assert len(seen.subgraphs) == len(model.subgraphs) and seen.version == model.version
    assert [bytes(code.signatureKey) for code in seen.signatureDefs] == [
        bytes(code.signatureKey) for code in model.signatureDefs
    ]


def test_a_float_model_that_quaver_saved_is_tuned_as_the_model_itself(
    tuned: quaver.TuneResult, float_tflite: Path, tmp_path: Path
) -> None:
    path = quaver.recover(float_tflite, tuned.workspace, 0).save(tmp_path / "float.tflite")
    assert path.read_bytes() != float_tflite.read_bytes()
    assert tuned.best is not None
    recovered = quaver.recover(path, tuned.workspace, tuned.best.number)  # its fingerprint is that of the float model
    assert recovered.SerializeToString() == saved(tuned).read_bytes()


def test_a_model_with_data_behind_its_flatbuffer_is_saved_without_provenance(
    float_tflite: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = graphs.read(float_tflite.read_bytes())
    model.buffers[-1].offset, model.buffers[-1].size = 4096, 16
    assert head(graphs.write(model), PROPERTIES) == b""
    assert "does not say where it comes from" in caplog.text


def test_damaged_provenance_is_ignored(tuned: quaver.TuneResult, tmp_path: Path) -> None:
    content = saved(tuned).read_bytes()
    rng = np.random.default_rng(0)
    path = tmp_path / "damaged.tflite"
    for _ in range(300):
        damaged = bytearray(content[: rng.integers(8, 3000)])
        for place in rng.integers(0, len(damaged), 4):
            damaged[place] = rng.integers(256)
        path.write_bytes(damaged)
        try:
            read_provenance(path)
            quaver.read_provenance(path)
        except quaver.ModelError:
            pass


def test_show_prints_it(tuned: quaver.TuneResult, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(saved(tuned))]) == 0
    said = capsys.readouterr().out
    assert "ai-edge-litert" in said and "(unchanged since it was scored)" in said
