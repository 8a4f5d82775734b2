"""What is the user's own stays so: names instead of reprs, files for the user alone, cells that nobody runs."""

from __future__ import annotations

import csv
import functools
import io
import os
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake import FakeAdapter, FakeFloat, quality

import quaver
from quaver.adapters import registry
from quaver.api.config.config import Config
from quaver.diagnosis.tables import to_csv

MODEL = FakeFloat({"a": 0.0, "b": 0.2})
SECRET = "token-of-the-user"


class Holder:
    """Its repr shows what it holds, and so does its text."""

    def __repr__(self) -> str:
        return SECRET

    def __call__(self, model: Any, token: str = "") -> float:
        return float(model.size)


@pytest.fixture(autouse=True)
def _fake_models_in_an_empty_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(registry, "adapters", lambda: {"fake": FakeAdapter})
    monkeypatch.chdir(tmp_path)


def fit(**settings: Any) -> quaver.TuneResult:
    chosen = {"strategy": "basic", "objective": "size", "workspace": "run", "eval_func": quality, **settings}
    return quaver.fit(MODEL, calib_dataloader=np.zeros((4, 2), np.float32), **chosen)


def sized(token: str, model: Any) -> float:
    return float(model.size)


OBJECTIVES = [
    Holder(),
    functools.partial(Holder(), token=SECRET),
    functools.partial(Holder().__call__, token=SECRET),
    functools.partial(functools.partial(sized), SECRET),
]


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_no_file_of_a_run_holds_the_repr_of_an_object(objective: Any) -> None:
    result = fit(objective=objective)
    for path in result.workspace.iterdir():
        assert SECRET.encode() not in path.read_bytes(), path.name


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_nor_does_one_of_a_run_that_goes_on_with_another_objective(objective: Any) -> None:
    fit(max_trials=1)
    heard: list[Any] = []
    result = fit(workspace=None, resume="run", objective=objective, max_trials=9, observer=heard.append)
    assert any("objective" in str(event) for event in heard) and SECRET not in str(heard)
    for path in result.workspace.iterdir():
        assert SECRET.encode() not in path.read_bytes(), path.name


def test_a_partial_is_recorded_by_the_name_of_its_function() -> None:
    (name,) = fit(objective=OBJECTIVES[-1]).trials[-1].measured
    assert name.startswith(f"{__name__}.sized@") and Config(objective=OBJECTIVES[-1]).to_dict()["objective"] == name


def test_keys_that_are_objects_are_kept_by_name_too() -> None:
    kept = Config(strategy_options={Holder(): 1, 3: 2, None: 3}).to_dict()["strategy_options"]
    assert kept == {f"{__name__}.Holder": 1, 3: 2, "None": 3}
    partial = Config(strategy_options={"score": functools.partial(len, SECRET)}).to_dict()
    assert SECRET not in str(partial) and "builtins.len" in str(partial)


@pytest.mark.skipif(os.name != "posix", reason="needs modes of files")
def test_files_that_hold_tracebacks_are_for_the_user_alone() -> None:
    before = os.umask(0)
    try:
        result = fit()
    finally:
        os.umask(before)
    for name in ("history.snapshot", "quaver.log"):
        assert stat.S_IMODE((result.workspace / name).stat().st_mode) == 0o600, name


@pytest.mark.skipif(os.name != "posix", reason="needs modes of files")
def test_a_mode_that_the_user_chose_stays_when_a_run_is_resumed() -> None:
    result = fit()
    result.history_path.chmod(0o644)
    quaver.fit(MODEL, eval_func=quality, resume=result.workspace)
    assert stat.S_IMODE(result.history_path.stat().st_mode) == 0o644


@pytest.mark.parametrize(
    ("name", "cell"),
    [
        ("=cmd|' /C calc'!A0", "'=cmd|' /C calc'!A0"),
        ("+1", "'+1"),
        ("-x", "'-x"),
        ("@sum", "'@sum"),
        ("\t=x", "\\t=x"),
        ("\r\n", "\\r\\n"),
        ("\x1b[2J", "\\x1b[2J"),
        ("a\0b", "a\\x00b"),
        ("\u202eabc", "\\u202eabc"),
        ("lone \udcff", "lone \\udcff"),
        ("/block.0/Conv, ü", "/block.0/Conv, ü"),
        ("", ""),
    ],
)
def test_a_name_in_a_table_is_neither_a_formula_nor_an_order_to_a_terminal(name: str, cell: str) -> None:
    text = to_csv((["op", "error"], [[name, -0.5]]))
    text.encode()
    assert list(csv.reader(io.StringIO(text))) == [["op", "error"], [cell, "-0.5"]]


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("run-\udcff", "is no UTF-8 text"),
        ("x" * 256, "has a name of 256 bytes, and 255 are the most"),
        ("ü" * 128, "has a name of 256 bytes"),
        ("below/" + "x" * 300 + "/run", "has a name of 300 bytes"),
        ("a\0b", "holds a NUL"),
    ],
)
@pytest.mark.parametrize("setting", ["workspace", "resume"])
def test_a_folder_that_cannot_be_is_refused_before_any_work(place: str, why: str, setting: str) -> None:
    with pytest.raises(quaver.SettingsError, match=f"`{setting}` must be a path .*{why}"):
        quaver.fit(MODEL, calib_dataloader=[], eval_func=quality, **{setting: place})  # type: ignore[misc]


def test_a_name_of_255_bytes_is_a_name() -> None:
    assert fit(workspace="x" * 255).workspace.exists()
