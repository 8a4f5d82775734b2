"""A cause is added in one place: a decorated function in a module of the package of causes."""

from __future__ import annotations

import sys
from pathlib import Path

import diagnosis_models as models
import pytest

import quaver
from quaver.diagnosis import causes
from quaver.diagnosis.causes import registry

CAUSE = """
from quaver.diagnosis.causes.registry import Stage, op_cause

@op_cause(Stage.WEIGHTS)
def named_second(evidence):
    if evidence.name == "second":
        yield evidence.cause("named_second", "it is the second op.", weight=7.0)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder whose modules count as modules of the package of causes."""
    registry._import_causes()
    monkeypatch.setattr(registry, "OP_CAUSES", list(registry.OP_CAUSES))
    monkeypatch.setattr(causes, "__path__", [*causes.__path__, str(tmp_path)])
    registry._import_causes.cache_clear()
    return tmp_path


def test_a_new_cause_is_one_function_in_one_file(folder: Path) -> None:
    (folder / "new_cause.py").write_text(CAUSE)
    try:
        diagnosis = quaver.diagnose(models.chain(), None, models.images(), timing=False, threads=1)
    finally:
        sys.modules.pop(f"{causes.__name__}.new_cause", None)
    cause = diagnosis.causes[0]
    assert (cause.op, cause.kind, cause.sentence) == ("second", "named_second", "it is the second op.")
