"""A torch module is a model: exported, compared with the module, tuned, and called like the module."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch_scenes
from torch.utils.data import DataLoader, TensorDataset
from torch_modules import VOCABULARY, Deciding, Images, Pretending, Texts, agreement

import quaver

QUICK: dict[str, Any] = {"strategy": "basic", "relative": 0.3, "max_trials": 2, "report": False, "verbose": 0}


@pytest.fixture
def images() -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randn(48, 1, 12, 12)


def fit(model: Any, folder: Path, data: Any, eval_func: Any, **settings: Any) -> quaver.TuneResult:
    return quaver.fit(
        model, calib_dataloader=data, eval_func=eval_func, workspace=folder / "run", **{**QUICK, **settings}
    )


def test_a_cnn_is_tuned_from_its_loader_and_called_like_the_module(images: torch.Tensor, tmp_path: Path) -> None:
    module = Images()
    score = agreement(module, images)
    module.train()
    loader = DataLoader(TensorDataset(images, torch.zeros(len(images))), batch_size=16)
    result = fit(module, tmp_path, loader, score)
    assert result.met and module.training and module.blocks[0].norm.training
    assert "by torch.export, dynamic axes image[0]" in str(result) and "tracing" not in str(result)
    assert score(result.model) == result.best.score
    module.eval()
    with torch.no_grad():
        expected = module(images[:1])
    assert (result.model(images[:1]) - expected).abs().max() < 0.1 * expected.abs().max()
    assert isinstance(result.model(images[:3].numpy()), np.ndarray)  # arrays in, arrays out
    assert {"stem/node_conv2d", "blocks.0.conv/node_conv2d_1", "head/node_linear"} <= set(result.best.config)
    recovered = quaver.recover(module, result.workspace, 1)
    assert recovered.sha256 == result.best.model_hash and score(recovered) == result.best.score
    again = quaver.fit(module, calib_dataloader=loader, eval_func=score, resume=result.workspace, verbose=0)
    assert again.best == result.best
    saved = result.save(tmp_path / "int8.onnx")
    as_file = quaver.recover(result.workspace / "float_model.onnx", result.workspace, 1)
    assert as_file.sha256 == result.best.model_hash and saved.exists()
    with torch.no_grad():
        module.head.weight += 1
    with pytest.raises(quaver.ModelError, match="has other weights than the module that"):
        quaver.recover(module, result.workspace, 1)


def test_a_transformer_keeps_open_lengths_named_outputs_and_optional_inputs(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = Texts()
    batches = [
        {"ids": torch.randint(0, VOCABULARY, (6, length)), "labels": torch.zeros(6, dtype=torch.long)}
        for length in (5, 9, 7)
    ]
    test = torch.randint(0, VOCABULARY, (40, 12))  # a length that no batch has
    result = fit(module, tmp_path, iter(batches), agreement(module, test, "logits"))
    assert result.met and "ids[0], ids[1]" in result.conversions[0]
    outputs = result.model(**batches[0])
    assert list(outputs) == ["logits", "hidden"] and outputs[0] is outputs.logits
    assert outputs["hidden"][0].shape == (6, 5, 32) and outputs.hidden[1].shape == (6, 32)
    with pytest.raises(AttributeError, match="has no output 'loss'; it has logits, hidden"):
        _ = outputs.loss
    with pytest.raises(quaver.CalibrationError, match="passes 'scale', which the calibration batches did not have"):
        result.model(test, scale=torch.ones(40, 1))


def test_a_module_that_decides_by_values_is_refused_with_the_place(tmp_path: Path) -> None:
    with pytest.raises(quaver.ModelError, match=r"Deciding cannot be exported to ONNX\. torch\.export: .*") as caught:
        fit(Deciding(), tmp_path, [torch.randn(4, 8)], len)
    assert "a decision depends on values (torch_modules.py, line" in str(caught.value)
    assert "torch.where or torch.cond" in str(caught.value)


def test_an_export_that_computes_something_else_is_caught(tmp_path: Path) -> None:
    with pytest.raises(
        quaver.ModelError, match=r"computes something else than the module: 'output' differs by 5\..e-02"
    ):
        fit(Pretending(), tmp_path, [torch.randn(4, 8)], len)


def test_what_the_older_exporter_had_to_do_is_said(
    images: torch.Tensor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from quaver.adapters.torch import export

    def fail(attempt: object) -> None:
        raise RuntimeError("no such operator")

    monkeypatch.setitem(export._EXPORTERS, "torch.export", fail)
    module = Images()
    result = fit(module, tmp_path, [images], agreement(module, images))
    assert "by tracing" in str(result) and "(torch.export failed: RuntimeError: no such operator)" in str(result)
    assert "/blocks.0/conv/Conv" in result.best.config


def test_workers_call_it_like_the_module_too(images: torch.Tensor, tmp_path: Path) -> None:
    module = Images()
    result = fit(module, tmp_path, [images], agreement(module, images), n_jobs=2)
    assert result.met and all(trial.worker for trial in result.trials)


def test_a_folder_of_hugging_face_takes_texts_and_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import AutoTokenizer, pipeline

    monkeypatch.chdir(tmp_path)
    names = torch_scenes.of_texts()
    texts = names["test_texts"][:40]
    tokens = AutoTokenizer.from_pretrained("my_model")(texts, padding=True, return_tensors="pt")

    def score(model: Any) -> float:
        by_text = [answer["label"] for answer in model(texts)]
        by_token = [model.config.id2label[int(index)] for index in model(**tokens).logits.argmax(dim=1)]
        assert by_text == by_token
        return sum(a == f"LABEL_{b}" for a, b in zip(by_text, names["test_labels"], strict=False)) / len(texts)

    result = fit("my_model", tmp_path, names["train_texts"][:64], score)
    assert result.met and result.baseline > 0.9
    assert "input_ids[0], input_ids[1], attention_mask[0], attention_mask[1]" in result.conversions[0]
    classifier = pipeline("text-classification", model="my_model", tokenizer="my_model")
    by_pipeline = quaver.fit(
        classifier, calib_dataloader=texts, eval_func=score, workspace=tmp_path / "pipeline", **QUICK
    )
    assert by_pipeline.met and by_pipeline.model("a bright film")[0]["label"] in ("LABEL_0", "LABEL_1")
    with pytest.raises(quaver.CalibrationError, match="is text, and there is no tokenizer"):
        fit(classifier.model, tmp_path / "other", texts, score)


def test_a_state_dict_a_half_module_and_another_command_get_advice(tmp_path: Path) -> None:
    with pytest.raises(quaver.ModelError, match=r"a state dict holds weights .* call `module\.load_state_dict"):
        fit(Images().state_dict(), tmp_path / "a", [torch.zeros(1)], len)
    with pytest.raises(quaver.ModelError, match=r"weights in float16, .* pass `module\.float\(\)`"):
        fit(Images().half(), tmp_path / "b", [torch.zeros(1)], len)
    with pytest.raises(quaver.ModelError, match=r"which `quaver\.fit` and `quaver\.open_run` export\. Elsewhere pass"):
        quaver.profile(Images())
    with pytest.raises(quaver.CalibrationError, match="exported with its calibration data: pass calib_dataloader"):
        fit(Images(), tmp_path / "c", None, None)
    with pytest.raises(quaver.ModelError, match=r"Images itself fails on a calibration batch \(image \[2, 3\]"):
        fit(Images(), tmp_path / "d", [torch.zeros(2, 3)], len)


def test_quaver_itself_never_imports_torch(tmp_path: Path) -> None:
    import subprocess

    code = """
import sys, quaver
from quaver.demo.run import MODEL
from quaver.demo.data import digits
quaver.fit(MODEL, calib_dataloader=digits()[0][:16], strategy="basic", verbose=0, workspace=sys.argv[1])
assert "torch" not in sys.modules and "transformers" not in sys.modules
"""
    done = subprocess.run(
        [sys.executable, "-c", code, "run"], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr
