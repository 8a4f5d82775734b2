"""`quaver insights` without an argument: where it looks for runs, and which it shows first."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from quaver.command.main import main
from quaver.insights.page.runs import Runs

SNAPSHOT = Path(__file__).parents[1] / "history" / "data" / "digits-3.snapshot"


def record_run(folder: Path) -> None:
    folder.mkdir(parents=True)
    shutil.copy(SNAPSHOT, folder / "history.snapshot")


def test_the_command_serves_runs_of_both_names(tmp_path: Path) -> None:
    record_run(tmp_path / "nc_workspace" / "2026-02-03_10-00-00")
    command = [sys.executable, "-m", "quaver.command.main", "insights", "--port", "0"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        first_line = process.stdout.readline()
        process.terminate()
    assert first_line.startswith("quaver insights is on http://127.0.0.1:")


def test_the_newest_run_of_both_folders_comes_first(tmp_path: Path) -> None:
    names = ["quaver_workspace/2026-02-03_09-00-00", "nc_workspace/2026-02-03_10-00-00",
             "quaver_workspace/2026-02-03_11-00-00"]  # fmt: skip
    for name in names:
        record_run(tmp_path / name)
    runs = Runs([tmp_path / "quaver_workspace", tmp_path / "nc_workspace"])
    assert [runs.label(key) for key in runs.scan()] == [Path(name).name for name in reversed(names)]


def test_without_either_folder_the_command_names_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["insights"]) == 2
    message = capsys.readouterr().err
    assert "quaver_workspace" in message and "nc_workspace" in message
