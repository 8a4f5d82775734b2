"""What tests share lies in tests/support."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "support"))


@pytest.fixture(autouse=True)
def _times_of_its_own(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test goes by what another has measured, nor by what the user's own runs have."""
    monkeypatch.setenv("QUAVER_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture(autouse=True)
def _no_report(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of tests that are about something else write no report: there are hundreds of them."""
    if "insights" not in request.path.parts:
        session, finish = (importlib.import_module(f"quaver.api.{name}") for name in ("session", "finish"))
        monkeypatch.setattr(session, "write_report", lambda workspace: None)
        monkeypatch.setattr(finish, "note_inside", lambda *ignored: None)
