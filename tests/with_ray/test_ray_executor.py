"""Trials on Ray. Its package is large, so that these tests have a make target of their own: `make test-ray`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="make test-ray installs it")

from quaver.testing import check_executor


def test_workers_of_ray_keep_the_contract() -> None:
    check_executor(backend="ray", n_jobs=2)


def test_the_example_runs_as_it_stands(tmp_path: Path) -> None:
    example = Path(__file__).parents[2] / "examples" / "on_ray.py"
    done = subprocess.run([sys.executable, example], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "meets the criterion" in done.stdout, done.stdout
