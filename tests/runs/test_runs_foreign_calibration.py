"""The calibration in a history is looked at before it is used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from networks import Closeness, chain, inputs

import quaver
from quaver import HistoryError
from quaver.history import Header, History, read_snapshot

MODEL = chain(2)
RANGE = {"minmax": (-1.0, 1.0), "percentile": (-1.0, 1.0), "entropy": (-1.0, 1.0)}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("calibrated") / "run"
    quaver.fit(MODEL, calib_dataloader=inputs(), eval_func=Closeness(MODEL), strategy="basic", objective="size",
               max_trials=1, workspace=folder)  # fmt: skip
    return folder


def forged(run: Path, folder: Path, calibration: dict[str, Any]) -> Path:
    """The history of a run with another calibration in its header."""
    snapshot = read_snapshot(run)
    header = snapshot.header
    with History.create(folder) as history:
        history.begin(Header(header.model_fingerprint, header.adapter, header.ops, calibration, header.created))
        history.start_run(snapshot.run.settings, snapshot.run.versions)
        assert snapshot.baseline is not None
        for trial in (snapshot.baseline, *snapshot.trials):
            history.append(trial)
    return folder


STATISTIC = {"tensor": "x", "kind": "mean", "axis": 0, "dtype": "<f8", "shape": [1], "data": bytes(8)}
WRONG: list[dict[str, Any]] = [
    {},
    {"ranges": None},
    {"ranges": []},
    {"ranges": {"x": None}},
    {"ranges": {1: RANGE}},
    {"ranges": {"x": {"minmax": (-1.0, 1.0)}}},
    {"ranges": {"x": {**RANGE, "entropy": 1.0}}},
    {"ranges": {"x": {**RANGE, "entropy": (1.0,)}}},
    {"ranges": {"x": {**RANGE, "entropy": ("a", "b")}}},
    {"ranges": {"x": {**RANGE, "entropy": (float("nan"), 1.0)}}},
    {"ranges": {"x": {**RANGE, "entropy": (-1.0, float("inf"))}}},
    {"ranges": {"x": {**RANGE, "entropy": (1.0, -1.0)}}},
    {"ranges": {"x": {**RANGE, "entropy": (0.0, 1e300)}}},
    {"ranges": {}, "statistics": None},
    {"ranges": {}, "statistics": [1]},
    {"ranges": {}, "statistics": [{}]},
    {"ranges": {}, "statistics": [{**STATISTIC, "kind": "sum"}]},
    {"ranges": {}, "statistics": [{**STATISTIC, "dtype": "O"}]},
    {"ranges": {}, "statistics": [{**STATISTIC, "shape": [10**12]}]},
    {"ranges": {}, "statistics": [{**STATISTIC, "shape": {"a": 1}}]},
    {"ranges": {}, "statistics": [{**STATISTIC, "data": b"7 bytes"}]},
    {"ranges": {}, "statistics": [{**STATISTIC, "axis": [0]}]},
]


@pytest.mark.parametrize("calibration", WRONG, ids=range(len(WRONG)))
def test_a_calibration_that_nobody_recorded_is_an_error_of_the_file(
    run: Path, tmp_path: Path, calibration: dict[str, Any]
) -> None:
    path = forged(run, tmp_path, calibration)
    for use in (
        lambda: quaver.recover(MODEL, path, 1),
        lambda: quaver.fit(MODEL, eval_func=Closeness(MODEL), resume=path),
    ):
        with pytest.raises(HistoryError, match=r"the calibration in .*history.snapshot cannot be used"):
            use()


def test_ranges_of_other_tensors_are_an_error_too(run: Path, tmp_path: Path) -> None:
    path = forged(run, tmp_path, {"ranges": {"somewhere": RANGE}})
    with pytest.raises(quaver.QuaverError, match=r"has no .* range"):
        quaver.recover(MODEL, path, 1)
