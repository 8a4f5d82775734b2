"""Figures in Python, the report, and behaviour without the optional packages."""

from __future__ import annotations

import builtins
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from insights_runs import tune

import quaver
from quaver.insights import Plot, write_report


def test_a_result_can_be_drawn(demo: quaver.TuneResult) -> None:
    conv = next(op.name for op in quaver.read_snapshot(demo.workspace).header.ops if op.kind == "Conv")
    for figure in (demo.plot.trials(), demo.plot.pareto(), demo.plot.pareto("size"), demo.plot.ops()):
        assert figure.data and figure.to_json()
    assert demo.plot.histogram(conv).layout.xaxis.title.text == "value of the weight"
    with pytest.raises(quaver.SettingsError, match="no op is called"):
        demo.plot.histogram("nothing")
    with pytest.raises(quaver.SettingsError, match="latency or size"):
        demo.plot.pareto("colour")


def test_drawing_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(quaver.HistoryError, match="no trial yet"):
        Plot(tmp_path).trials()


def test_a_run_writes_its_report(demo: quaver.TuneResult) -> None:
    report = demo.workspace / "report.html"
    text = report.read_text()
    assert report.stat().st_size < 3e6 and report.stat().st_mode & 0o077 == 0
    for title in ("Summary", "Trials", "Trade-off", "Sensitivity", "Ops", "Graph", "Profile"):
        assert f"<h2>{title}</h2>" in text
    assert not re.search(r'(src|href)="(?!#)', text)


def test_a_report_without_plotly_has_its_tables(demo: quaver.TuneResult, tmp_path: Path, no_plotly: None) -> None:
    path = write_report(demo.workspace, tmp_path / "report.html")
    text = path.read_text()
    assert "pip install" in text and "<td" in text and path.stat().st_size < 200_000
    with pytest.raises(quaver.MissingPackageError, match="not installed: pip install 'plotly>=6' 'dash>=3'"):
        demo.plot.trials()


@pytest.fixture
def no_plotly(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if plotly were not installed."""
    real = builtins.__import__

    def absent(name: str, *others: Any) -> Any:
        if name.partition(".")[0] == "plotly":
            raise ImportError(name)
        return real(name, *others)

    monkeypatch.setattr(builtins, "__import__", absent)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)


def test_a_report_that_cannot_be_written_is_an_error_with_the_path(demo: quaver.TuneResult, tmp_path: Path) -> None:
    with pytest.raises(quaver.SettingsError, match="cannot write the report"):
        write_report(demo.workspace, tmp_path / "no" / "report.html")
    with pytest.raises(quaver.HistoryError, match="no run to report on"):
        write_report(tmp_path)


def test_a_failing_report_does_not_fail_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*ignored: Any) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr("quaver.engine.inspection.best_model.examine", broken)
    monkeypatch.setattr("quaver.api.plugins.entry_points", broken)
    result = tune(tmp_path / "run", max_trials=1)
    assert result.best is not None and not (tmp_path / "run" / "report.html").exists()
    log = (tmp_path / "run" / "quaver.log").read_text()
    assert "could not be inspected" in log and "report of the run could not be written" in log


def test_no_report_is_written_with_report_false(tmp_path: Path) -> None:
    tune(tmp_path / "run", max_trials=1, report=False)
    assert not (tmp_path / "run" / "report.html").exists()
    notes = quaver.read_snapshot(tmp_path / "run").notes
    assert "run.ended" in notes and not any(name.startswith("inside.") for name in notes)


def test_a_notebook_shows_a_card(demo: quaver.TuneResult) -> None:
    card = demo._repr_html_()
    assert card.startswith("<div") and card.count("<div") == card.count("</div>") == 1


def test_a_resumed_run_inspects_only_a_new_best_trial(demo: quaver.TuneResult, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(demo.workspace, folder)
    size = (folder / "history.snapshot").stat().st_size
    tune(None, resume=folder)
    assert (folder / "history.snapshot").stat().st_size < size + 5000
