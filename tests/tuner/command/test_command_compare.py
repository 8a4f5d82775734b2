"""`quaver compare`: runs side by side."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_samples import make_folder, quaver, tune


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs, of which the second keeps the last module in fp32."""
    made = make_folder(tmp_path_factory.mktemp("compare"), last="head/Gemm")
    assert tune(made, "--workspace", "first").returncode == 0
    assert tune(made, "--workspace", "second", "--op-name", "head=fp32", "--relative", "0.02").returncode == 0
    return made


def test_figures_settings_and_ops_that_differ_are_listed_within_80_columns(folder: Path) -> None:
    done = quaver(folder, "compare", "first", "second")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["figure", "first", "second"]
    assert max(len(line) for line in lines[: lines.index("")]) <= 80
    rows = {line.split()[0]: line.split()[1:] for line in lines if line.split()}
    assert rows["model"] == ["model.onnx", "model.onnx"] and rows["verdict"][0].startswith("met")
    assert rows["evaluations"] == ["2", "2"] and rows["relative"] == ["0.01", "0.02"]
    assert rows["head/Gemm"] == ["Gemm", "int8", "fp32"]


def test_the_json_holds_each_run_and_the_settings_that_differ(folder: Path) -> None:
    told = json.loads(quaver(folder, "compare", "first", "second", "--json").stdout)
    assert [run["met"] for run in told["runs"]] == [True, True]
    assert told["runs"][1]["best"]["fp32_ops"] == ["head/Gemm"]
    assert told["settings"]["relative"] == ["0.01", "0.02"] and "workspace" not in told["settings"]


def test_one_run_alone_is_refused(folder: Path) -> None:
    done = quaver(folder, "compare", "first")
    assert done.returncode == 2 and "pass two runs or more to compare" in done.stderr
