"""A record for every run, figures that are measured later, and notes that grow."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from history_samples import (
    ALL_FP32,
    ALL_INT8,
    BASELINE,
    LATER,
    RUNS,
    TRIALS,
    a_failure,
    a_header,
    a_trial,
    record_sample,
    start,
)

from quaver.errors import HistoryError
from quaver.history import FILE_NAME, History, Run, read_snapshot
from quaver.ops import FLOAT, INT8, Op, OpConfig, Precision, QuantConfig


def test_each_trial_has_the_run_that_recorded_it(tmp_path: Path) -> None:
    record_sample(tmp_path / FILE_NAME)
    snapshot = read_snapshot(tmp_path)
    assert snapshot.run == RUNS[1]
    assert [snapshot.run_of(number).number for number in range(5)] == [1, 1, 1, 2, 2]
    with pytest.raises(HistoryError, match="has no trial 9; it has 0 to 4"):
        snapshot.run_of(9)


def test_runs_are_counted_from_1_and_carry_the_time(tmp_path: Path) -> None:
    with History.create(tmp_path) as history:
        with pytest.raises(HistoryError, match=r"the run cannot be recorded .*begin\(\)"):
            history.start_run({}, {})
        history.begin(a_header())
        assert [history.start_run({}, {}).number for _ in range(3)] == [1, 2, 3]
        assert history.run.started.endswith("+00:00")
    with History.resume(tmp_path) as history:
        assert history.start_run({"seed": 1}, {"onnx": "1"}).number == 4
    assert read_snapshot(tmp_path).run == history.run


def test_a_run_does_not_change_with_its_settings_object(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"rules": ["a"]}
    with History.create(tmp_path) as history:
        history.begin(a_header())
        history.start_run(settings, {})
        settings["rules"].append("b")
        assert history.run.settings == read_snapshot(tmp_path).run.settings == {"rules": ["a"]}


def test_a_run_without_a_record_has_number_0(tmp_path: Path) -> None:
    with History.create(tmp_path) as history:
        assert history.run == Run(0, "", {}, {})
        history.begin(a_header())
        history.append(a_trial(1))
        assert (history.runs, history.run.number) == ((), 0)
        start(history, RUNS[0])
        history.append(a_trial(2))
    snapshot = read_snapshot(tmp_path)
    assert snapshot.run_of(1) == Run(0, a_header().created, {}, {})
    assert snapshot.run_of(2) == snapshot.run == RUNS[0]


@pytest.mark.parametrize(
    ("settings", "versions", "message"),
    [
        ({"relative": np.float64(0.1)}, {}, r"settings\['relative'\] .* not numpy\.float64"),
        ({"precision": INT8}, {}, r"settings\['precision'\] .* not quaver\.ops\.Precision"),
        ({}, {"onnx": 1}, r"versions\['onnx'\] must be a str"),
    ],
)
def test_a_run_that_is_not_plain_is_refused(tmp_path: Path, settings: Any, versions: Any, message: str) -> None:
    with History.create(tmp_path) as history:
        history.begin(a_header())
        with pytest.raises(HistoryError, match=message):
            history.start_run(settings, versions)
        assert history.runs == ()
    assert read_snapshot(tmp_path).runs == ()


def test_figures_are_added_to_their_trial_which_keeps_its_place(tmp_path: Path) -> None:
    with History.create(tmp_path) as history:
        history.begin(a_header())
        history.append(BASELINE)
        for trial in (a_trial(1), TRIALS[1]):
            history.append(trial)
        assert history.measure(1, LATER) == TRIALS[0]
        assert history.find(ALL_INT8) == TRIALS[0]
        assert history.trials == list(TRIALS[:2])
        history.measure(2, {"latency": 1})
        history.measure(0, {"latency": 1.0})
        assert history.measure(2, {}).measured == {"latency": 1.0}
    with History.resume(tmp_path) as history:
        assert history.find(ALL_INT8) == TRIALS[0]
        assert [trial.measured for trial in history.trials] == [{"latency": 0.41, "user": 2.5}, {"latency": 1.0}]
    snapshot = read_snapshot(tmp_path)
    assert snapshot.trials == tuple(history.trials)
    assert snapshot.trial(0) == snapshot.baseline == dataclasses.replace(BASELINE, measured={"latency": 1.0})


def test_the_newest_trial_of_a_config_stays_the_one_that_is_found(tmp_path: Path) -> None:
    with History.create(tmp_path) as history:
        history.begin(a_header())
        history.append(a_trial(1))
        history.append(a_failure(2, ALL_FP32))
        history.append(a_trial(3))
        history.measure(1, LATER)
        assert history.find(ALL_INT8) == a_trial(3)


@pytest.mark.parametrize(
    ("number", "figures", "message"),
    [
        (2, LATER, "a measurement of trial 2 cannot be recorded .*there is no trial 2"),
        (0, LATER, "there is no trial 0"),
        (1, {"latency": np.float32(1)}, r"figures\['latency'\] must be a float under a str, not numpy\.float32"),
        (1, {"latency": True}, "not bool"),
        (1, {1: 1.0}, r"figures\[1\]"),
    ],
)
def test_figures_that_cannot_be_read_are_not_written(tmp_path: Path, number: int, figures: Any, message: str) -> None:
    with History.create(tmp_path) as history:
        history.begin(a_header())
        history.append(a_trial(1))
        before = history.path.read_bytes()
        with pytest.raises(HistoryError, match=message):
            history.measure(number, figures)
        assert (history.trials, history.path.read_bytes()) == ([a_trial(1)], before)


def test_trials_are_hashable() -> None:
    assert len({a_trial(1), a_trial(1, measured={}), *TRIALS, *TRIALS}) == 6


def test_a_note_grows_by_what_is_added(tmp_path: Path) -> None:
    with History.create(tmp_path) as history:
        history.begin(a_header())
        history.extend_note("probe", {"a": 1.0})
        history.extend_note("probe", {"b": 2.0, "a": 3.0})
        history.note("other", {"a": 1})
        history.extend_note("other", {"b": [2]})
        expected = {"probe": {"a": 3.0, "b": 2.0}, "other": {"a": 1, "b": [2]}}
        assert history.notes == read_snapshot(tmp_path).notes == expected
        history.note("probe", {"c": 1.0})
    assert read_snapshot(tmp_path).notes == expected | {"probe": {"c": 1.0}}


def test_items_of_a_note_do_not_change_with_their_object(tmp_path: Path) -> None:
    items = {"a": [1]}
    with History.create(tmp_path) as history:
        history.begin(a_header())
        history.extend_note("probe", items)
        items["a"].append(2)
        assert history.notes["probe"] == read_snapshot(tmp_path).notes["probe"] == {"a": [1]}


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ({1: 1.0}, "keys of type str, not int"),
        ({"a": np.float64(1)}, r"items\['a'\] must be made of plain builtins, not numpy\.float64"),
    ],
)
def test_items_that_cannot_be_read_back_are_not_added_to_a_note(tmp_path: Path, items: Any, message: str) -> None:
    with History.create(tmp_path) as history:
        history.begin(a_header())
        with pytest.raises(HistoryError, match=message):
            history.extend_note("probe", items)
        history.note("list", [1])
        with pytest.raises(HistoryError, match="the note 'list' is not a dict"):
            history.extend_note("list", {"a": 1})
        assert history.notes == read_snapshot(tmp_path).notes == {"list": [1]}


@pytest.mark.parametrize("long", [False, True], ids=["ops", "fingerprints"])
def test_two_thousand_measurements_taken_one_by_one_stay_under_a_megabyte(tmp_path: Path, long: bool) -> None:
    def key(index: int) -> str:
        by_op = f"/encoder/layer.{index}/attention/output/dense/MatMul int8 minmax per_channel asym"
        return hashlib.sha256(by_op.encode()).hexdigest() if long else by_op

    with History.create(tmp_path) as history:
        history.begin(a_header())
        for index in range(2000):
            history.extend_note("probe.output_error", {key(index): index / 7})
    assert history.path.stat().st_size < 1_000_000
    assert read_snapshot(tmp_path).notes["probe.output_error"] == {key(index): index / 7 for index in range(2000)}


STRANGE = (
    OpConfig(INT8),
    OpConfig(INT8, mode="dynamic"),
    OpConfig(INT8, mode="weight_only"),
    OpConfig(INT8, repairs=("smooth_quant", "bias_correction")),
    OpConfig(Precision("int4"), mode="weight_only", repairs=("gptq",)),
    OpConfig(Precision("bf16"), "", "per_tensor"),
    OpConfig(Precision("fp64")),
    FLOAT,
)


def test_modes_repairs_and_precisions_are_read_back(tmp_path: Path) -> None:
    ops = tuple(Op(f"op{index}", "Conv", (), STRANGE) for index in range(len(STRANGE)))
    config = QuantConfig((op.name, choice) for op, choice in zip(ops, STRANGE, strict=True))
    with History.create(tmp_path) as history:
        history.begin(a_header(ops=ops))
        history.append(a_trial(1, config))
    snapshot = read_snapshot(tmp_path)
    assert snapshot.header.ops == ops
    assert snapshot.trial(1).config == config
    assert tuple(snapshot.trial(1).config.values()) == STRANGE


def test_an_unknown_mode_is_not_written(tmp_path: Path) -> None:
    config = ALL_INT8.replace({"/stem/Conv": OpConfig(INT8, mode="lunar")})
    with History.create(tmp_path) as history:
        history.begin(a_header())
        with pytest.raises(HistoryError, match="unknown mode 'lunar'; known are static, dynamic, weight_only"):
            history.append(a_trial(1, config))
