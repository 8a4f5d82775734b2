"""`quaver card` and `quaver check --manifest`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from command_samples import make_folder, tune

from quaver.command.main import main


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with scores of samples, and its model in a folder to publish."""
    made = make_folder(tmp_path_factory.mktemp("card"), last="head/Gemm")
    assert tune(made, "-o", "out/net.onnx", "--relative", "0.2", function="right").returncode == 0
    return made


@pytest.fixture(autouse=True)
def _there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


def test_the_card_has_the_scores_as_metadata_and_no_path_of_this_machine(folder: Path) -> None:
    words = ["--task", "image-classification", "--dataset", "digits", "--license", "mit", "--name", "small net"]
    assert main(["card", "run", "--model", "out/net.onnx", "-o", "out/README.md", *words]) == 0
    _, front, body = Path("out/README.md").read_text().split("---\n", 2)
    metadata = yaml.safe_load(front)
    (entry,) = metadata["model-index"]
    (result,) = entry["results"]
    assert entry["name"] == "small net" and metadata["license"] == "mit"
    assert result["task"] == {"type": "image-classification"} and result["dataset"]["name"] == "digits"
    assert [metric["name"] for metric in result["metrics"]] == ["top1 (int8)", "top1 (fp32)"]
    assert result["metrics"][1]["value"] == 1.0
    assert "x fp32 latency" in body and "confidence" in body and "loss of at most 20.00%" in body
    assert "quaver recover model.onnx run 1" in body and str(folder) not in body


def test_the_manifest_is_verified_and_a_changed_or_missing_file_is_found(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["card", "run", "--model", "out/net.onnx", "-o", "out/README.md", "--manifest", "out/m.json"]) == 0
    content = json.loads(Path("out/m.json").read_text())
    assert content["scores"]["fp32"] == {"top1": 1.0} and content["files"]["net.onnx"]["bytes"] > 0
    assert main(["check", "--manifest", "out/m.json"]) == 0
    assert "net.onnx: unchanged since it was published" in capsys.readouterr().out
    content["versions"]["onnx"] = "0.1"
    Path("out/m.json").write_text(json.dumps(content))
    assert main(["check", "--manifest", "out/m.json", "--json"]) == 0
    (note,) = json.loads(capsys.readouterr().out)["notes"]
    assert note.startswith("onnx is ") and note.endswith("and was 0.1")
    whole = Path("out/net.onnx").read_bytes()
    changed = bytearray(whole)
    changed[len(whole) // 2] ^= 1
    for damaged, problem in ((bytes(changed), "another sha256"), (whole[:-1], "bytes instead of")):
        Path("out/net.onnx").write_bytes(damaged)
        assert main(["check", "--manifest", "out/m.json"]) == 3
        assert problem in capsys.readouterr().out
    Path("out/net.onnx").unlink()
    assert main(["check", "--manifest", "out/m.json"]) == 3
    assert "net.onnx: MISSING" in capsys.readouterr().out
    Path("out/net.onnx").write_bytes(whole)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["check", "--manifest", "nowhere.json"], "no manifest at 'nowhere.json'"),
        (["check", "--manifest", "model.onnx"], "is no manifest of quaver"),
        (["check", "--manifest", "out/m.json", "a.onnx", "b.onnx"], "leave the models out"),
        (["check"], "pass the float model and the quantized model, or --manifest FILE"),
        (["card", "run", "--model", "model.onnx", "--manifest", "m.json"], "does not say where it comes from"),
    ],
)
def test_what_cannot_be_done_is_named(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert message in capsys.readouterr().err
