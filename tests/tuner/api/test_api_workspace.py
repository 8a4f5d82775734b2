"""The folder of a run: where it is, what is in it, and when it goes again."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake import FakeAdapter, FakeFloat, quality

import quaver
from quaver import (
    CalibrationError,
    EvaluationError,
    HistoryError,
    ModelError,
    SettingsError,
    StopReason,
    TuneResult,
)
from quaver.adapters import registry
from quaver.api import workspace
from quaver.engine.event_base import Event

pytestmark = pytest.mark.filterwarnings("ignore:resumed run")  # see test_config_resume

MODEL = FakeFloat({"a": 0.0, "b": 0.2})
DATA = np.zeros((4, 2), np.float32)


@pytest.fixture(autouse=True)
def _fake_models_in_an_empty_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(registry, "adapters", lambda: {"fake": FakeAdapter})
    monkeypatch.chdir(tmp_path)


def fit(model: Any = MODEL, **changes: Any) -> TuneResult:
    settings = {"calib_dataloader": DATA, "eval_func": quality, "strategy": "basic", "objective": "size", **changes}
    return quaver.fit(model, **settings)


def raising(error: BaseException) -> Callable[[Any], float]:
    def eval_func(model: Any) -> float:
        raise error

    return eval_func


def test_a_run_gets_a_dated_folder_of_its_own() -> None:
    result = fit()
    assert result.workspace.parent == Path("quaver_workspace").absolute()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d", result.workspace.name)
    assert result.history_path == result.workspace / "history.snapshot"
    assert sorted(path.name for path in result.workspace.iterdir()) == [
        "best_model.fake",
        "history.snapshot",
        "quaver.log",
        "quaver.yaml",
    ]


def test_runs_of_the_same_second_get_folders_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stopped(workspace.datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Stopped:
            return cls(2025, 1, 31, 12, 0, 0)

    monkeypatch.setattr(workspace, "datetime", Stopped)
    names = [fit().workspace.name for _ in range(3)]
    assert names == ["2025-01-31_12-00-00", "2025-01-31_12-00-00_2", "2025-01-31_12-00-00_3"]


@pytest.mark.parametrize("given", ["here", "deep/er/down", Path("there"), "a b'c\"$(x);é*?[1]%s{0}\n"])
def test_a_folder_that_is_given_is_made_and_used(given: str | Path) -> None:
    result = fit(workspace=given)
    assert result.workspace == Path(given).absolute() and result.history_path.is_file()
    again = fit(resume=result.workspace)
    assert again.trials == result.trials


def test_a_folder_that_holds_other_things_can_be_used_and_keeps_them(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    fit(workspace=tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_the_history_of_an_earlier_run_is_never_overwritten() -> None:
    before = fit(workspace="here").history_path.read_bytes()
    with pytest.raises(SettingsError, match=r"here' holds the history of an earlier run. Continue it with resume="):
        fit(workspace="here")
    assert Path("here/history.snapshot").read_bytes() == before


def test_a_workspace_that_is_a_file_or_lies_below_one_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match="file' is a file, not a folder"):
        fit(workspace="file")
    with pytest.raises(SettingsError, match=r"cannot create the workspace .*file/below': Not a directory"):
        fit(workspace="file/below")


EARLY = {
    "no model": (ModelError, {"model": "nowhere.onnx"}),
    "a model of no adapter": (ModelError, {"model": object()}),
    "nothing to quantize": (ModelError, {"model": FakeFloat({})}),
    "rules that leave nothing": (SettingsError, {"op_type_dict": {"Conv": "fp32"}}),
    "a rule that matches nothing": (SettingsError, {"op_name_dict": {"zzz": "fp32"}}),
    "an unknown strategy": (SettingsError, {"strategy": "baisc"}),
    "an unknown objective": (SettingsError, {"objective": "spede"}),
    "an unknown setting": (SettingsError, {"max_trails": 3}),
    "no calibration data": (SettingsError, {"calib_dataloader": None}),
    "calibration data of a wrong shape": (CalibrationError, {"calib_dataloader": np.zeros((4, 7), np.float32)}),
    "no function": (SettingsError, {"eval_func": 0.5}),
    "an eval_func that raises": (EvaluationError, {"eval_func": raising(KeyError("label"))}),
    "an eval_func that returns None": (EvaluationError, {"eval_func": lambda model: None}),
    "an eval_func that returns NaN": (EvaluationError, {"eval_func": lambda model: float("nan")}),
    "an eval_func that returns a tuple": (EvaluationError, {"eval_func": lambda model: (0.5, 0.1)}),
    "a baseline of zero": (SettingsError, {"eval_func": lambda model: 0.0}),
    "Ctrl-C during the baseline": (KeyboardInterrupt, {"eval_func": raising(KeyboardInterrupt())}),
    "an exit during the baseline": (EvaluationError, {"eval_func": raising(SystemExit(3))}),
}


@pytest.mark.parametrize("what", EARLY)
@pytest.mark.parametrize("given", [None, "here", "some/where"])
def test_a_run_that_fails_early_leaves_nothing_behind(what: str, given: str | None, tmp_path: Path) -> None:
    error, changes = EARLY[what]
    with pytest.raises(error) as caught:
        fit(**{"workspace": given, **changes})
    assert list(tmp_path.iterdir()) == []
    assert "resume" not in "".join(getattr(caught.value, "__notes__", []))


def test_a_run_that_fails_early_removes_only_what_it_made(tmp_path: Path) -> None:
    (tmp_path / "outer").mkdir()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "quaver.yaml").write_text("mine")
    for given in ("outer/inner", "mine"):
        with pytest.raises(EvaluationError):
            fit(workspace=given, eval_func=lambda model: None)
    kept = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*"))
    assert kept == ["mine", "mine/quaver.yaml", "outer"]


def test_after_a_failed_baseline_the_same_line_can_be_run_again() -> None:
    with pytest.raises(EvaluationError):
        fit(workspace="here", eval_func=lambda model: None)
    assert fit(workspace="here").met


def test_a_run_that_fails_late_is_kept_and_the_error_says_how_to_go_on() -> None:
    class Broken(quaver.Strategy):
        def propose(self, space: quaver.TuningSpace, probe: quaver.Probe) -> Any:
            yield space.default_config()
            raise ZeroDivisionError("a bug")

    with pytest.raises(ZeroDivisionError) as caught:
        fit(workspace="here", strategy=Broken)
    path = Path("here").absolute() / "history.snapshot"
    assert caught.value.__notes__ == [f"Everything is in {path}; continue with fit(..., resume={str(path)!r})"]
    assert len(quaver.read_snapshot("here").trials) == 1
    assert fit(resume="here").met


def test_the_workspace_stays_where_it_is_when_eval_func_goes_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()

    def wanders(model: Any) -> float:
        os.chdir(tmp_path / "elsewhere")
        return quality(model)

    result = fit(workspace="here", eval_func=wanders)
    assert result.model_path == tmp_path / "here" / "best_model.fake" and result.model_path.is_file()
    os.chdir(tmp_path)
    resumed = fit(resume="here", eval_func=wanders, max_trials=200)
    assert resumed.workspace == tmp_path / "here"
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_the_log_tells_the_story_a_line_an_event() -> None:
    def hard(model: Any) -> float:
        if model.config is not None and not model.config.fp32_ops:
            raise ValueError("a label \udcff that is no text")
        return quality(model)

    result = fit(workspace="here", eval_func=hard)
    log = (result.workspace / "quaver.log").read_text(encoding="utf-8")
    for line in ("reading the model", "calibrating", "tuning 2 ops with strategy basic: at", "fp32: score"):
        assert len(re.findall(rf"^\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d {line}", log, re.MULTILINE)) == 1, line
    assert r"ValueError: a label \udcff that is no text" in log
    assert log.rstrip().endswith(str(result))


def test_warnings_of_the_library_go_into_the_log_of_the_run_alone() -> None:
    def warns(event: Event) -> None:
        logging.getLogger("quaver.somewhere").warning("mind the step")

    result = fit(workspace="here", observer=warns)
    logging.getLogger("quaver.somewhere").warning("too late")
    log = (result.workspace / "quaver.log").read_text()
    assert "WARNING mind the step" in log and "too late" not in log


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs the device that is always full")
@pytest.mark.parametrize("name", ["quaver.log", "quaver.yaml"])
def test_a_log_or_settings_file_that_cannot_be_written_does_not_end_a_run(name: str, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / name).symlink_to("/dev/full")
    result = fit(workspace="here", op_name_dict={"b": "fp32"})
    assert result.met and result.reason is StopReason.MET
    (tmp_path / "there" / name).mkdir(parents=True)
    assert fit(workspace="there").met


def test_an_observer_that_fails_does_not_end_a_run(caplog: pytest.LogCaptureFixture) -> None:
    told: list[Event] = []

    def fails(event: Event) -> None:
        raise BrokenPipeError("nobody reads")

    with pytest.warns(RuntimeWarning, match=r"fails failed on RunStarted \(BrokenPipeError: nobody reads\)") as said:
        result = fit(observer=[fails, told.append])
    assert result.met
    assert len(said) == 1 and len(told) > 5  # the user gets one message; the other observers still get events
    assert "fails failed on TrialFinished; the run continues" in caplog.text


def test_an_observer_is_told_in_order() -> None:
    told: list[Event] = []
    fit(observer=told.append, eval_func=lambda model: 0.5)
    assert [type(event).__name__ for event in told] == [
        "RunStarted", "StageStarted", "StageStarted", "Progressed", "Progressed", "Planned", "TrialStarted",
        "BaselineScored", "TrialStarted", "TrialFinished", "RunFinished",
    ]  # fmt: skip
    assert [event.time for event in told] == sorted(event.time for event in told)


@pytest.mark.parametrize("observer", ["log", 5, [print, None]])
def test_an_observer_that_cannot_be_called_is_refused_before_any_work(observer: Any) -> None:
    with pytest.raises(SettingsError, match="observer must be a function of an event, or a list of them"):
        fit(observer=observer)


def test_resuming_what_is_not_there_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(HistoryError, match=r"holds no history\.snapshot"):
        fit(resume="empty")
    with pytest.raises(HistoryError, match="there is no snapshot at"):
        fit(resume="nowhere")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty"]
