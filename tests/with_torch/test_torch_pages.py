"""The pages for readers who come from PyTorch and Hugging Face run with both, and so does the example."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch_scenes
from pages import run_page

EXAMPLE = Path(__file__).parents[2] / "examples" / "pytorch_digits.py"


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_page_about_pytorch_runs_from_the_module_to_the_int8_file() -> None:
    names = torch_scenes.of_images()
    run_page("docs/start/pytorch.md", names)
    assert names["result"].met
    assert Path("model-int8.onnx").stat().st_size < (names["result"].workspace / "float_model.onnx").stat().st_size
    assert names["accuracy"](names["result"].model) == names["result"].best.score
    assert names["exported"].met


def test_the_page_about_hugging_face_runs_with_its_tokenizer() -> None:
    names = torch_scenes.of_texts()
    run_page("docs/start/hugging-face.md", names)
    assert names["result"].baseline > 0.95
    assert names["result"].met
    assert names["accuracy"](names["result"].model) == names["result"].best.score


def test_the_example_trains_exports_and_tunes(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, EXAMPLE], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "meets the criterion" in done.stdout
    assert (tmp_path / "digits-int8.onnx").exists()


def test_the_newcomers_script_with_a_loader_runs(tmp_path: Path) -> None:
    sys.path.insert(0, str(Path(__file__).parents[1] / "newcomer"))
    from newcomers import prepare, run

    done = run("dataloader", prepare(tmp_path))
    assert done.returncode == 0, done.stderr
