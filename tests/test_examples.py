"""Every example runs unmodified."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import nbclient
import nbformat
import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
# The repository contains the output of the first. Other make targets run the others.
ELSEWHERE = {"train_digits.py", "pytorch_digits.py", "on_ray.py", "mxnet_gluon.py"}


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.py") if path.name not in ELSEWHERE))
def test_an_example_runs_unmodified_and_meets_its_criterion(name: str, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, EXAMPLES / name], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "meets the criterion" in done.stdout, done.stdout


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.ipynb")))
def test_a_notebook_runs_unmodified(name: str, tmp_path: Path) -> None:
    notebook = nbformat.read(EXAMPLES / name, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "clear the outputs before you commit it"
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    printed = [output.get("text", "") for cell in notebook.cells for output in cell.get("outputs", ())]
    assert any("meets the criterion" in text for text in printed)


def test_the_example_for_pytorch_runs_with_torch_and_says_so_without(tmp_path: Path) -> None:
    example = EXAMPLES / "pytorch_digits.py"
    done = subprocess.run([sys.executable, example], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    expected = "meets the criterion" if find_spec("torch") else "needs PyTorch"
    assert expected in done.stdout


def test_the_custom_strategy_is_short() -> None:
    lines = (EXAMPLES / "custom_strategy.py").read_text().splitlines()
    assert len([line for line in lines if line.strip() and not line.strip().startswith('"""')]) < 25
