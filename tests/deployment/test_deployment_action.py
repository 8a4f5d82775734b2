"""The steps of action.yml, as GitHub runs them: inputs as variables, outputs and summary as files."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from saved_models import MODEL, SavedModel

from quaver.demo.data import digits
from quaver.demo.run import EVAL

ROOT = Path(__file__).parents[2]
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text())


def run_check(folder: Path, **inputs: str) -> tuple[int, dict[str, str], str]:
    """Return the exit code, the outputs and the log of the step that checks."""
    (step,) = [step for step in ACTION["runs"]["steps"] if step.get("id") == "check"]
    values = {
        name: inputs.get(name.replace("-", "_"), entry.get("default", "")) for name, entry in ACTION["inputs"].items()
    }
    named = {
        name: re.sub(r"\$\{\{ inputs\.([\w-]+) }}", lambda m: values[m[1]], text) for name, text in step["env"].items()
    }
    assert "${{" not in step["run"]  # the shell would run the text of an input
    files = {"GITHUB_OUTPUT": str(folder / "output"), "GITHUB_STEP_SUMMARY": str(folder / "summary")}
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
        cwd=folder, env={**os.environ, **named, **files, "PATH": path}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    outputs = dict(line.split("=", 1) for line in (folder / "output").read_text().splitlines())
    return done.returncode, outputs, done.stdout + done.stderr


@pytest.fixture
def folder(tmp_path: Path, cnn: SavedModel) -> Path:
    import numpy as np

    _, _, images, labels = digits()
    (tmp_path / "my eval.py").write_text(EVAL)
    np.savez(tmp_path / "test.npz", image=images)
    np.save(tmp_path / "y.npy", labels)
    (tmp_path / "model.onnx").write_bytes(MODEL.read_bytes())
    (tmp_path / "int8.onnx").write_bytes(cnn.path.read_bytes())
    return tmp_path


def test_a_good_model_passes_and_leaves_its_files(folder: Path) -> None:
    code, outputs, log = run_check(
        folder, model="model.onnx", quantized="int8.onnx", metric="top1", data="test.npz", labels="y.npy"
    )
    assert code == 0, log
    assert outputs["verdict"] in ("met", "inconclusive")
    assert json.loads((folder / outputs["json"]).read_text())["verdict"] == outputs["verdict"]
    assert "<testsuite" in (folder / outputs["junit"]).read_text()
    assert "int8.onnx" in (folder / "summary").read_text()


def test_a_slow_model_fails(folder: Path) -> None:
    code, outputs, log = run_check(
        folder, model="model.onnx", quantized="int8.onnx", eval="my eval.py:accuracy", faster_than="50",
        arguments="--confidence 0 --threads 1",
    )  # fmt: skip
    assert code == 3, log
    assert outputs["verdict"] == "not met"


def test_an_absent_file_fails_with_its_name_and_is_not_run_as_a_command(folder: Path) -> None:
    code, outputs, log = run_check(
        folder, model="model.onnx", quantized="$(touch ran).onnx", eval="my eval.py:accuracy"
    )
    assert code == 2 and "$(touch ran).onnx" in log
    assert outputs["verdict"] == "" and not (folder / "ran").exists()


def test_every_input_is_used() -> None:
    steps = json.dumps(ACTION["runs"]["steps"])
    for name in ACTION["inputs"]:
        assert f"inputs.{name} }}" in steps, name
