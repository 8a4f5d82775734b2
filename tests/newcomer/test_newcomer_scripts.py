"""The scripts that newcomers write first run unmodified. `make dist` runs them with the installed wheel."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
from newcomers import SCRIPTS, prepare

# Two that are quick; `make dist` runs all ten.
IN_PROCESS = ("generator", "rules_by_module")


@pytest.mark.parametrize("name", IN_PROCESS)
def test_a_script_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(prepare(tmp_path))
    runpy.run_path(str(SCRIPTS[name]), run_name="__main__")


def test_there_are_ten_scripts() -> None:
    assert len(SCRIPTS) == 10
