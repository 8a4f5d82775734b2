"""A snapshot may hold impossible figures: every view shows it without an error."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from quaver import formatting
from quaver.command import main
from quaver.history import Header, History
from quaver.insights import FollowedRun, write_report
from quaver.insights.data import text as page_wording
from quaver.insights.data.summary import verdict
from quaver.ops import FLOAT, INT8, Op, OpConfig, QuantConfig
from quaver.trial import Trial, TrialState

CHOICE = OpConfig(INT8)
OPS = tuple(Op(name, "Gemm", (name,), (CHOICE, FLOAT)) for name in "ab")
CONFIG = QuantConfig(dict.fromkeys("ab", CHOICE))
FIGURES = ("latency", "latency_ms", "latency_spread", "as_given_ms", "batch", "threads", "predicted_latency")
ODD = [math.inf, -math.inf, math.nan, -1.0, 0.0, 1e-300, 1e18, 1e300]


def odd_run(folder: Path, value: float) -> Path:
    """A run in which every figure is the same odd one."""
    measured = dict.fromkeys((*FIGURES, "predicted_ms"), value)
    size = 2**63 - 1 if not value < 1e18 else max(int(value), 0) if math.isfinite(value) else 0
    with History.create(folder / "history.snapshot") as history:
        history.begin(Header("f" * 64, "onnxrt", OPS, {}, "now"))
        history.start_run({"relative": 0.5, "objective": "latency"}, {})
        odd = {"seconds": value, "build_seconds": value, "started": value, "worker": "host:1", "measured": measured}
        history.append(Trial(0, CONFIG.fallback(*"ab"), TrialState.COMPLETE, 0.9, model_size=size, **odd))
        history.append(Trial(1, CONFIG, TrialState.COMPLETE, 0.8, model_size=size, **odd))
        history.append(Trial(2, CONFIG.fallback("a"), TrialState.FAILED, error="x", model_size=size, **odd))
        history.note("run.ended", {"run": 1, "reason": "x", "seconds": value, "stages": {"reading": value}})
        history.note("inside.profile", {"trial": 1, "fp32": {"p50": value, "threads": value}, "rows": []})
        history.note("inside.about", {"trial": 1, "samples": 1})
        history.note("unquantizable", [["Loop", 3, value]])
        history.note("probe.latency", {"a": [value, value]})
    return folder


@pytest.mark.parametrize("value", ODD)
def test_every_command_shows_a_snapshot_with_impossible_figures(
    tmp_path: Path, value: float, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(odd_run(tmp_path, value))
    for words in (["history"], ["show", "0"], ["show", "1"], ["show", "2"], ["show", "best"], ["show", "1", "2"]):
        verb, *rest = words
        assert main.main([verb, folder, *rest]) == 0, words
        assert main.main([verb, folder, *rest, "--json"]) == 0, words
        out = capsys.readouterr().out
        json.loads(out[out.index("{\n") :])
    assert main.main(["report", folder]) == 0


@pytest.mark.parametrize("value", ODD)
def test_page_and_report_show_a_snapshot_with_impossible_figures(tmp_path: Path, value: float) -> None:
    data = FollowedRun(odd_run(tmp_path, value)).poll()
    assert data is not None and verdict(data).headline
    assert "<h2>Profile</h2>" in write_report(tmp_path, tmp_path / "report.html").read_text()


def test_an_impossible_duration_is_shown_as_unknown() -> None:
    for value in (math.inf, -math.inf, math.nan, -0.001, 1e300):
        assert formatting.duration(value) == "unknown time"
    for value in (math.inf, -math.inf, math.nan, -1e300, 1e300):
        assert page_wording.duration(value) == formatting.MISSING
    assert [formatting.duration(value) for value in (0.0, 5.0, 600.0)] == ["0.0 s", "5.0 s", "10 min"]
