"""The pipelines of docs/ci.md check a model unmodified."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import code_blocks
import pytest
import scenes
import yaml


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("gate")
    scenes.make_data(made)
    before = Path.cwd()
    os.chdir(made)
    try:
        scenes.of_gate()
    finally:
        os.chdir(before)
    return made


def pipelines() -> list[dict[str, Any]]:
    """Those of GitHub and of GitLab."""
    return [yaml.safe_load(block.code) for block in code_blocks.blocks("docs/ci.md") if block.language == "yaml"]


def run(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """As a pipeline does it: in bash, which stops at the first error."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    return subprocess.run(
        ["bash", "-e", "-c", script], cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True
    )


def test_the_workflow_of_github_leaves_a_verdict_and_a_report(folder: Path) -> None:
    github, _ = pipelines()
    (script,) = [step["run"] for step in github["jobs"]["check"]["steps"] if "quaver check" in step.get("run", "")]
    done = run(script, folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads((folder / "check.json").read_text())["verdict"] == "met"
    assert "<testsuite" in (folder / "check.xml").read_text()


def test_the_pipeline_of_gitlab_passes_or_says_that_the_samples_cannot_tell(folder: Path) -> None:
    _, gitlab = pipelines()
    (script,) = [line for line in gitlab["int8"]["script"] if line.startswith("quaver check")]
    done = run(script, folder)
    assert done.returncode in (0, gitlab["int8"]["allow_failure"]["exit_codes"]), done.stdout + done.stderr
    assert (folder / gitlab["int8"]["artifacts"]["reports"]["junit"]).exists()
