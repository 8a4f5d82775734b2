"""An event carries its own line: the log, the console and the live display show it without knowing its class."""

from __future__ import annotations

import io
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

import pytest

from quaver.api.display.console import ConsoleDisplay
from quaver.api.display.live import LiveDisplay
from quaver.api.display.warnings import warn_of_notices
from quaver.api.run_log import LOG, run_log
from quaver.budget import StopReason
from quaver.engine.event_base import EVALUATING, Event, Stage, Tone
from quaver.engine.events import (
    BaselineScored,
    Confirmed,
    Planned,
    RunFinished,
    StageStarted,
    TrialFinished,
    TrialStarted,
)
from quaver.engine.observers import StageTimes
from quaver.ops import QuantConfig
from quaver.trial import Trial, TrialState


@dataclass(frozen=True, slots=True)
class TeaMade(Event):
    """An event that no module of quaver knows."""

    cups: int

    def line(self) -> str:
        return f"{self.cups} cups of tea are ready"

    def details(self) -> str:
        return "with milk"

    @property
    def tone(self) -> Tone:
        return Tone.GOOD

    @property
    def is_notice(self) -> bool:
        return True


def test_a_new_event_is_in_the_log(tmp_path: Path) -> None:
    with run_log(tmp_path) as log:
        log(TeaMade(2))
    text = (tmp_path / LOG).read_text()
    assert "2 cups of tea are ready\n" in text and "with milk\n" in text


def test_a_new_event_is_a_line_on_the_console() -> None:
    file = io.StringIO()
    ConsoleDisplay(file)(TeaMade(3))
    assert file.getvalue() == "quaver  0.0 s  3 cups of tea are ready\n"


def test_a_new_event_is_on_the_live_display(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stderr)
    with LiveDisplay() as live:
        live(TeaMade(4))
    assert "4 cups of tea are ready" in stderr.getvalue()


def test_a_notice_is_a_warning_where_nobody_listens() -> None:
    with pytest.warns(UserWarning, match="5 cups of tea are ready"):
        warn_of_notices(TeaMade(5))
    with warnings.catch_warnings(action="error"):
        warn_of_notices(StageStarted(Stage.TIMING))


def a_trial(number: int, seconds: float) -> Trial:
    return Trial(number, QuantConfig({}), TrialState.COMPLETE, 0.5, seconds=seconds)


def test_stage_times_end_with_the_next_stage_the_search_or_a_trial() -> None:
    times = StageTimes()
    for event in (
        StageStarted(Stage.READING, time=0.0),
        StageStarted(Stage.CALIBRATING, time=2.0),
        Planned("basic", 3, 5, None, 0.0, time=5.0),
        TrialStarted(0, None, time=6.0),
        BaselineScored(a_trial(0, 4.0), time=11.0),
        StageStarted(Stage.TIMING, time=12.0),
        TrialStarted(1, None, time=13.0),
        TrialFinished(a_trial(1, 7.0), None, time=21.0),
        StageStarted(Stage.READING, time=30.0),
        RunFinished(StopReason.MET, None, None, 2, "", time=31.0),
    ):
        times(event)
    assert times.stages == {"reading the model": 3.0, "calibrating": 3.0, "timing each op": 1.0}
    assert times.all == {**times.stages, EVALUATING: 11.0}


def test_the_baseline_of_an_earlier_run_took_no_time_of_this_one() -> None:
    times = StageTimes()
    times(BaselineScored(a_trial(0, 4.0)))
    assert times.all == {}


def test_the_last_line_tells_where_the_time_went_the_longest_stage_first() -> None:
    event = RunFinished(StopReason.MET, None, None, 2, "summary", {"calibrating": 3.0, EVALUATING: 200.0})
    assert event.line().endswith(". eval_func: 3 min (99%); calibrating: 3.0 s (1%)")
    assert event.details() == "summary"


def test_only_a_missed_confirmation_is_a_notice() -> None:
    assert Confirmed(1, 0.5, 0.9, 0.4, False).is_notice and not Confirmed(1, 0.9, 0.9, 0.0, True).is_notice
