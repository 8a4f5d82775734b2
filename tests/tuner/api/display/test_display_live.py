"""The display of `fit` during a run."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake import FakeAdapter  # noqa: F401 - registers the framework
from networks import Closeness, chain, inputs

import quaver
from quaver.api.display.live import MAX_PENDING, Relay, Screen
from quaver.engine.event_base import Event

MODEL = chain(3, 0)


def fit(folder: Path, **settings: Any) -> quaver.TuneResult:
    given = {"strategy": "basic", "objective": "size", "threads": 1, "max_trials": 1, **settings}
    return quaver.fit(MODEL, calib_dataloader=inputs(), eval_func=Closeness(MODEL), workspace=folder, **given)


def test_without_a_terminal_lines_go_to_stderr_and_zero_is_quiet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told: list[Event] = []
    fit(tmp_path / "a", observer=told.append)
    out, err = capsys.readouterr()
    assert out == "" and told
    assert [line.split("  ")[-1].split(":")[0] for line in err.splitlines()] == [
        "reading the model", "calibrating", "tuning 3 ops with strategy basic", "fp32", "trial 1", "done",
    ]  # fmt: skip
    fit(tmp_path / "b", verbose=0)
    assert capsys.readouterr() == ("", "")


def test_a_notebook_gets_lines_on_stdout(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shell = SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    fit(tmp_path / "a")
    out, err = capsys.readouterr()
    assert "trial 1: score" in out and err == ""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return 2


def test_a_second_run_beside_a_displayed_one_gets_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = Terminal()
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setenv("TERM", "xterm")

    def nested(model: Any) -> float:
        if not (tmp_path / "inner").exists():
            fit(tmp_path / "inner")
        return 1.0

    quaver.fit(
        MODEL, calib_dataloader=inputs(), eval_func=nested, strategy="basic", objective="size", max_trials=1,
        workspace=tmp_path / "outer",
    )  # fmt: skip
    assert sys.stderr is stderr
    assert "s  trial 1: score" in stderr.getvalue() and "\x1b[" in stderr.getvalue()


@pytest.mark.parametrize("wrong", [2, -1, "loud", 0.5])
def test_another_verbosity_is_refused(tmp_path: Path, wrong: Any) -> None:
    with pytest.raises(quaver.SettingsError, match=r"`verbose` must be None .*, 0 \(quiet\) or 1 \(lines\)"):
        fit(tmp_path / "a", verbose=wrong)
    assert not (tmp_path / "a").exists()


def test_a_screen_follows_bars_and_settles_lines() -> None:
    settled: list[str] = []
    screen = Screen(settled.append)
    for done in (1, 2, 3):
        screen.take(f"\router {done}")
        screen.take("\n")
        screen.take(f"\rinner {done}")
        screen.take("\x1b[A")
    assert screen.pending == ["outer 3", "inner 3"] and settled == []
    screen.take("\r         \n\r          \x1b[A")
    screen.end()
    assert settled == [] and screen.pending == []
    screen.take("".join(f"line {number}\n" for number in range(10)))
    assert settled == [f"line {number}" for number in range(10 - MAX_PENDING)]
    screen.end()
    assert settled == [f"line {number}" for number in range(10)]
    screen.take("a part")
    screen.take(" and more\x1b[9999999999Aof it")
    assert screen.pending == ["a part and moreof it"]


def test_a_stream_that_outlives_the_display_writes_to_the_real_one() -> None:
    beneath = io.StringIO()
    relay = Relay(beneath, Screen(lambda line: None))
    print("shown", file=relay)
    assert beneath.getvalue() == ""
    relay.detach_display()
    print("later", file=relay, flush=True)
    assert beneath.getvalue() == "later\n"
