"""Every example runs as it stands."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
# The first needs torch and minutes, and what it made is in the repository; the others are for `make test-ray` and
# `make test-mxnet`.
ELSEWHERE = {"train_digits.py", "on_ray.py", "mxnet_gluon.py"}


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.py") if path.name not in ELSEWHERE))
def test_an_example_runs_as_it_stands_and_meets_its_criterion(name: str, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, EXAMPLES / name], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "meets the criterion" in done.stdout, done.stdout


def test_the_custom_strategy_is_short() -> None:
    lines = (EXAMPLES / "custom_strategy.py").read_text().splitlines()
    assert len([line for line in lines if line.strip() and not line.strip().startswith('"""')]) < 25
