"""The displays tell when a run should end, and when it must."""

from __future__ import annotations

import io
import time
from pathlib import Path

import pytest

from quaver.api.display.console import ConsoleDisplay
from quaver.api.display.time_left import TimeLeft
from quaver.engine.event_base import Event, Stage
from quaver.engine.events import (
    BaselineScored,
    Planned,
    Progressed,
    RunStarted,
    StageStarted,
    TrialFinished,
    TrialStarted,
)
from quaver.ops import QuantConfig
from quaver.trial import Trial, TrialState


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that stands still until a test sets it."""
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def trial(number: int, seconds: float) -> Trial:
    return Trial(number, QuantConfig({}), TrialState.COMPLETE, 1.0, 0.0, False, seconds)


def begun(timeout: float, trials: int, baseline: float, spent: float = 0.0) -> list[Event]:
    """The events of a run up to its baseline."""
    settings = {"timeout": timeout, "max_trials": 100}
    return [
        RunStarted(Path(), settings, False, spent),
        Planned("auto", 20, trials, None, timeout),
        TrialStarted(0, None),
        BaselineScored(trial(0, baseline)),
    ]


def following(*events: Event) -> TimeLeft:
    left = TimeLeft()
    for event in events:
        left(event)
    return left


def evaluated(number: int, seconds: float) -> list[Event]:
    return [TrialStarted(number, None), TrialFinished(trial(number, seconds), None)]


@pytest.mark.usefixtures("clock")
def test_nothing_is_told_before_the_search_is_planned() -> None:
    assert TimeLeft().left() == ""
    assert following(*begun(0, 11, 60)[:2]).left() == ""


@pytest.mark.usefixtures("clock")
def test_a_run_should_end_long_before_its_last_trial() -> None:
    assert following(*begun(0, 34, 60)).left() == "about 3 min left (at most 34 min)"


@pytest.mark.usefixtures("clock")
def test_after_failures_as_many_trials_again_are_expected() -> None:
    events = begun(0, 34, 60)
    for number in range(1, 6):
        events += evaluated(number, 60)
    assert following(*events).left() == "about 5 min left (at most 29 min)"
    for number in range(6, 31):
        events += evaluated(number, 60)
    assert following(*events).left() == "at most about 4 min left"


@pytest.mark.usefixtures("clock")
def test_a_timeout_ends_a_run_that_goes_on_improving() -> None:
    assert following(*begun(100, 100, 60, spent=40)).left() == "60 s left"
    assert following(*begun(10000, 2, 60)).left() == "at most about 2 min left"


def test_the_current_stage_counts(clock: list[float]) -> None:
    left = following(*begun(0, 34, 60), StageStarted(Stage.SENSITIVITY, "200 ops"))
    clock[0] += 30
    left(Progressed(Stage.SENSITIVITY, 25, 100))
    assert left.stage() == 90 and left.left() == "about 4.5 min left (at most 35.5 min)".replace("4.5", "4").replace(
        "35.5", "36"
    )
    left(Progressed(Stage.SENSITIVITY, 100, 100))
    assert left.stage() == 0


@pytest.mark.usefixtures("clock")
def test_the_log_tells_the_expected_end_after_the_baseline() -> None:
    file = io.StringIO()
    display = ConsoleDisplay(file)
    for event in begun(0, 34, 60):
        display(event)
    assert file.getvalue().splitlines()[-1].endswith("about 3 min left (at most 34 min)")
    short = io.StringIO()
    display = ConsoleDisplay(short)
    for event in begun(0, 34, 0.1):
        display(event)
    assert "left" not in short.getvalue()


def test_a_stage_tells_its_share_once() -> None:
    assert Progressed(Stage.SENSITIVITY, 3, 9).line() == ""
    line = Progressed(Stage.SENSITIVITY, 3, 9, left=12.0, share=0.4).line()
    assert line == "measuring the sensitivity of ops: about 12 s left, 40% of the search until then"


def test_a_stage_that_begins_again_at_once_is_told_once() -> None:
    file = io.StringIO()
    display = ConsoleDisplay(file)
    for stage in (Stage.REPAIRS, Stage.REPAIRS, Stage.SENSITIVITY, Stage.REPAIRS):
        display(StageStarted(stage))
    assert [line.split("s  ")[1] for line in file.getvalue().splitlines()] == [
        str(Stage.REPAIRS),
        str(Stage.SENSITIVITY),
        str(Stage.REPAIRS),
    ]
