"""Decoders with a cache: what follows from token numbers, and folders of onnxruntime-genai."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

sys.path.insert(0, str(Path(__file__).parent / "onnxrt"))

from tiny_decoder import VOCABULARY, decoder, tokens

import quaver
from quaver.adapters import load_unmodified
from quaver.adapters.decoder_inputs import next_feed
from quaver.adapters.generation import text_batches
from quaver.command.main import main
from quaver.errors import BuildError, CalibrationError, ModelError

TEXT = "the cat sat on the mat and the dog ran to the end of the long road by the sea " * 24


def folder_of(path: Path, **changes: str) -> Path:
    """Write a folder as onnxruntime-genai has it, with constants in a second file."""
    path.mkdir()
    external = {"save_as_external_data": True, "location": "model.onnx.data", "size_threshold": 1024}
    onnx.save_model(decoder(past=True), path / "model.onnx", **external)
    words = ["[UNK]", *dict.fromkeys(TEXT.split())]
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(path / "tokenizer.json"))
    config = {"model": {"type": "llama", "decoder": {"filename": "model.onnx"} | changes}}
    (path / "genai_config.json").write_text(json.dumps(config))
    return path


def test_a_decoder_with_a_cache_needs_token_numbers_only() -> None:
    model = load_unmodified(decoder(past=True))
    assert [spec.follows for spec in model.inputs] == ["", "cache", "cache", "cache", "cache"]
    (batch,) = tokens(1)
    logits = model(batch)[0]
    assert logits.shape == (2, 16, VOCABULARY)
    np.testing.assert_array_equal(logits, model({"input_ids": batch})[0])


def test_steps_with_the_cache_give_the_scores_of_the_whole_text() -> None:
    model = load_unmodified(decoder(past=True, causal=False))
    (batch,) = tokens(1, length=2)
    names = [value.name for value in model.session.get_outputs()]
    first = {spec.name: np.zeros((2, 0, 64), np.float32) for spec in model.inputs} | {"input_ids": batch[:, :1]}
    outputs = dict(zip(names, model.run(first), strict=True))
    second = next_feed(first, model.inputs, outputs, batch[:, 1:])
    assert second["past_key_values.1.value"].shape == (2, 1, 64)
    assert model.run(second)[0].shape == (2, 1, VOCABULARY)


def test_a_folder_is_tuned_from_texts_and_saved_as_a_folder(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    source, target = folder_of(tmp_path / "float"), tmp_path / "small"
    (tmp_path / "text.txt").write_text(TEXT)
    data = ["--calib", str(tmp_path / "text.txt"), "--metric", "kl_divergence", "--absolute", "0.05"]
    run = ["--objective", "size", "--workspace", str(tmp_path / "run"), "--no-report", "--max-trials", "3"]
    code = main(["tune", str(source), *data, *run, "-o", str(target), "--save-anyway", "--quiet"])
    assert code in (0, 3), capfd.readouterr().err
    assert sorted(path.name for path in target.iterdir()) == ["genai_config.json", "model.onnx", "tokenizer.json"]
    assert (target / "genai_config.json").read_bytes() == (source / "genai_config.json").read_bytes()
    whole = sum(path.stat().st_size for path in source.glob("model.onnx*"))
    assert (target / "model.onnx").stat().st_size < 0.4 * whole
    batch = text_batches(target, [TEXT])[0]
    before, after = (load_unmodified(folder)(batch)[0] for folder in (source, target))
    assert (before.argmax(-1) == after.argmax(-1)).mean() > 0.5
    again = quaver.recover(source, tmp_path / "run", 1)
    again.save(tmp_path / "again")
    assert (tmp_path / "again" / "tokenizer.json").exists()
    with pytest.raises(BuildError, match="folder of the float model"):
        again.save(source)


def test_long_texts_are_cut_and_folders_in_parts_are_refused(tmp_path: Path) -> None:
    source = folder_of(tmp_path / "float")
    assert [batch.shape for batch in text_batches(source, [TEXT, "cat", "the cat"], length=128, limit=5)] == [
        (1, 128), (1, 128), (1, 128), (1, len(TEXT.split()) - 3 * 128), (1, 2),
    ]  # fmt: skip
    with pytest.raises(CalibrationError, match="no two tokens"):
        text_batches(source, ["cat"])
    for name in ("../model.onnx", "other.onnx"):
        with pytest.raises(ModelError, match="no file in its folder"):
            load_unmodified(folder_of(tmp_path / name[-7:-5], filename=name))
