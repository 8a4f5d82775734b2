"""Records are read back unchanged, and data that could not be read back is refused."""

from __future__ import annotations

import dataclasses
import string
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from history_samples import (
    ADDED,
    ALL_FP32,
    ALL_INT8,
    BASELINE,
    BY_A_WORKER,
    NOTE,
    OPS,
    RUNS,
    TRIALS,
    a_failure,
    a_header,
    a_trial,
    next_number,
    record_sample,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from quaver.errors import HistoryError
from quaver.history import FILE_NAME, History, read_snapshot
from quaver.history.frames import PICKLED, pack, unpack
from quaver.history.records.fields import plain
from quaver.history.records.notes import from_items, from_note, to_items, to_note
from quaver.ops import FLOAT, INT8, Op, OpConfig, QuantConfig
from quaver.trial import Trial


def test_a_run_is_read_back_unchanged(tmp_path: Path) -> None:
    record_sample(tmp_path / FILE_NAME)
    snapshot = read_snapshot(tmp_path / FILE_NAME)
    assert snapshot.header == a_header()
    assert snapshot.baseline == BASELINE
    assert snapshot.trials == TRIALS
    assert snapshot.runs == RUNS
    assert snapshot.notes == {"probe": NOTE | ADDED}
    assert snapshot.damage is None
    assert [list(trial.config) for trial in snapshot.trials] == [[op.name for op in OPS]] * 4


def test_a_snapshot_can_be_read_from_its_folder(tmp_path: Path) -> None:
    record_sample(tmp_path / FILE_NAME)
    assert read_snapshot(str(tmp_path)) == read_snapshot(tmp_path / FILE_NAME)


def test_repairs_that_ops_offer_are_part_of_the_header(tmp_path: Path) -> None:
    first, *others = OPS
    repairable = dataclasses.replace(first, repairs=("bias_correction", "smoothing:0.5"), reads="x")
    with History.create(tmp_path) as history:
        history.begin(a_header(ops=(repairable, *others)))
    assert read_snapshot(tmp_path).header.ops == (repairable, *others)


def test_the_sample_would_notice_a_trial_field_that_is_not_stored() -> None:
    stored_as_given = {field.name for field in dataclasses.fields(Trial)} - {
        "number",
        "config",
        "state",
        "loss",
        "met",
        "interval",
    }
    for field in dataclasses.fields(Trial):
        if field.name in stored_as_given:
            assert any(getattr(trial, field.name) not in (field.default, {}) for trial in (*TRIALS, BY_A_WORKER)), (
                field.name
            )


def test_records_can_be_read_while_the_run_continues(tmp_path: Path) -> None:
    with History.create(tmp_path) as history:
        history.begin(a_header())
        for trial in TRIALS:
            history.append(trial)
            assert read_snapshot(tmp_path).trials[-1] == trial


def test_a_resumed_history_equals_the_first_one(tmp_path: Path) -> None:
    record_sample(tmp_path / FILE_NAME)
    with History.resume(tmp_path) as history:
        assert (history.header, history.baseline, history.notes) == (a_header(), BASELINE, {"probe": NOTE | ADDED})
        assert (history.runs, history.run) == (RUNS, RUNS[1])
        assert tuple(history.trials) == TRIALS
        assert next_number(history) == 5
        assert history.find(ALL_INT8) == TRIALS[0]
        assert history.damage is None


def test_a_verdict_is_not_recorded(tmp_path: Path) -> None:
    with History.create(tmp_path) as history:
        history.begin(a_header())
        history.append(a_trial(1, loss=0.25, met=True))
        assert history.trials == [a_trial(1)]
    assert read_snapshot(tmp_path).trials == (a_trial(1),)
    assert (a_trial(1).loss, a_trial(1).met) == (None, False)


def test_the_same_run_gives_the_same_bytes(tmp_path: Path) -> None:
    assert record_sample(tmp_path / "a") == record_sample(tmp_path / "b")


def test_find_gives_the_newest_trial_of_a_config_and_never_the_baseline(tmp_path: Path) -> None:
    with History.create(tmp_path) as history:
        history.begin(a_header())
        history.append(BASELINE)
        assert history.find(ALL_FP32) is None
        history.append(a_failure(1))
        history.append(a_trial(2))
        assert history.find(QuantConfig(reversed(list(ALL_INT8.items())))) == a_trial(2)


def test_trailing_failures_can_be_tried_again_and_stay_in_the_file(tmp_path: Path) -> None:
    first, second, third = (ALL_INT8.fallback(name) for name in ("/stem/Conv", "/body/MatMul", "/kopf/Gemm-ä"))
    with History.create(tmp_path) as history:
        history.begin(a_header())
        for trial in (a_failure(1, first), a_trial(2, second), a_failure(3, third), a_failure(4)):
            history.append(trial)
    with History.resume(tmp_path) as history:
        history.forget_trailing_failures()
        assert history.find(ALL_INT8) is None
        assert history.find(third) is None
        assert history.find(first) == a_failure(1, first)
        assert history.find(second) == a_trial(2, second)
        history.append(a_trial(next_number(history), third))
        assert history.find(third) == a_trial(5, third)
    assert [trial.number for trial in read_snapshot(tmp_path).trials] == [1, 2, 3, 4, 5]


def test_the_last_note_and_the_last_baseline_of_several_count(tmp_path: Path) -> None:
    with History.create(tmp_path) as history:
        history.begin(a_header())
        history.append(a_failure(0, ALL_FP32))
        history.append(BASELINE)
        history.note("probe", [1])
        history.note("probe", [2])
    snapshot = read_snapshot(tmp_path)
    assert (snapshot.baseline, snapshot.notes) == (BASELINE, {"probe": [2]})


def test_a_note_does_not_change_with_the_object_it_came_from(tmp_path: Path) -> None:
    data = {"ranking": ["a"]}
    with History.create(tmp_path) as history:
        history.begin(a_header())
        history.note("probe", data)
        data["ranking"].append("b")
        assert history.notes["probe"] == read_snapshot(tmp_path).notes["probe"] == {"ranking": ["a"]}


def test_an_unknown_trial_number_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with History.create(tmp_path) as history:
        history.begin(a_header())
        history.append(BASELINE)
        for number in (1, 2, 3, 7):
            history.append(a_trial(number))
    snapshot = read_snapshot(tmp_path)
    assert snapshot.trial(0) == BASELINE
    assert snapshot.trial(7) == a_trial(7)
    with pytest.raises(HistoryError, match=r"no trial 5; it has 0 to 3, 7$"):
        snapshot.trial(5)


def test_an_op_takes_about_one_byte_per_trial(tmp_path: Path) -> None:
    ops = tuple(
        Op(f"/layer.{index}/MatMul", "MatMul", (f"n{index}",), (OpConfig(INT8), FLOAT)) for index in range(5000)
    )
    config = QuantConfig((op.name, op.choices[index % 2]) for index, op in enumerate(ops))
    with History.create(tmp_path) as history:
        history.begin(a_header(ops=ops))
        before = history.path.stat().st_size
        history.append(a_trial(1, config))
        assert history.path.stat().st_size - before < 5500
    assert read_snapshot(tmp_path).trial(1).config == config


@pytest.mark.parametrize("count", [254, 255, 256, 257, 700])
def test_many_different_choices_take_two_bytes_per_op(tmp_path: Path, count: int) -> None:
    ops = tuple(Op(f"op{index}", "Conv", (), (OpConfig(INT8, f"method{index}"),)) for index in range(count))
    config = QuantConfig((op.name, op.choices[0]) for op in ops)
    with History.create(tmp_path) as history:
        history.begin(a_header(ops=ops))
        history.append(a_trial(1, config))
    snapshot = read_snapshot(tmp_path)
    assert snapshot.header.ops == ops
    assert dict(snapshot.trial(1).config) == dict(config)


def test_an_int_is_accepted_as_a_score(tmp_path: Path) -> None:
    with History.create(tmp_path) as history:
        history.begin(a_header())
        history.append(a_trial(1, score=1, seconds=2, measured={"latency": 1}))
    trial = read_snapshot(tmp_path).trial(1)
    assert (trial.score, trial.seconds, trial.measured) == (1.0, 2.0, {"latency": 1.0})
    assert type(trial.score) is float


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"score": np.float64(0.5)}, r"field 'score' .* must be float or None, not numpy\.float64"),
        ({"score": np.float32(0.5)}, r"field 'score' .* not numpy\.float32"),
        ({"score": float("nan")}, "'score' must be finite, not nan"),
        ({"score": float("inf")}, "'score' must be finite, not inf"),
        ({"score": True}, "'score' .* not bool"),
        ({"score": None}, "'score' must be a float, because the trial is complete"),
        ({"model_size": np.int64(5)}, r"field 'model_size' .* not numpy\.int64"),
        ({"measured": {"latency": np.float64(1)}}, r"measured\['latency'\] must be .* not numpy\.float64"),
        ({"number": -1}, "'number'"),
        ({"number": 10**400}, r"'number' .* below 2\*\*31"),
        ({"config": QuantConfig({"/stem/Conv": FLOAT})}, "does not cover exactly the ops"),
    ],
)
def test_a_trial_that_is_not_plain_is_refused_by_field(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with History.create(tmp_path) as history:
        history.begin(a_header())
        size = history.path.stat().st_size
        with pytest.raises(HistoryError, match=message) as caught:
            history.append(dataclasses.replace(a_trial(1), **changes))
        assert str(history.path) in str(caught.value)
        assert "trial" in str(caught.value)
        assert (history.trials, history.path.stat().st_size) == ([], size)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"a": [1, np.zeros(3)]}, r"data\['a'\]\[1\] must be made of plain builtins, not numpy\.ndarray"),
        ([INT8], r"data\[0\] .* not quaver\.ops\.Precision"),
        ({(1, 2): 3}, "keys of type str or int, not tuple"),
        ({1, 2}, "not set"),
        (bytearray(3), "not bytearray"),
        (2**5000, "5001 bits"),
    ],
)
def test_a_note_that_is_not_plain_is_refused_by_place(tmp_path: Path, data: Any, message: str) -> None:
    with History.create(tmp_path) as history:
        history.begin(a_header())
        with pytest.raises(HistoryError, match=message):
            history.note("probe", data)
        assert history.notes == {}
    assert read_snapshot(tmp_path).notes == {}


def test_data_that_holds_itself_is_refused(tmp_path: Path) -> None:
    loop: list[Any] = []
    loop.append(loop)
    with History.create(tmp_path) as history:
        history.begin(a_header())
        with pytest.raises(HistoryError, match="holds itself"):
            history.note("probe", loop)


def test_a_header_that_is_not_plain_is_refused(tmp_path: Path) -> None:
    with History.create(tmp_path) as history:
        with pytest.raises(HistoryError, match=r"calibration\['rate'\] .* numpy\.float64"):
            history.begin(a_header(calibration={"rate": np.float64(1)}))
        with pytest.raises(HistoryError, match="two ops of the same name"):
            history.begin(a_header(ops=(OPS[0], OPS[0])))
        assert history.header is None
        history.begin(a_header())


def test_order_and_numbers_of_trials_are_preserved(tmp_path: Path) -> None:
    with History.create(tmp_path) as history:
        with pytest.raises(HistoryError, match=r"begin\(\)"):
            history.append(a_trial(1))
        history.begin(a_header())
        with pytest.raises(HistoryError, match="has a header already"):
            history.begin(a_header())
        history.append(a_trial(1))
        with pytest.raises(HistoryError, match="trial 1 is there already"):
            history.append(a_trial(1))
    with pytest.raises(HistoryError, match="is closed"):
        history.append(a_trial(2))
    history.close()


_leaves = (
    st.none() | st.booleans() | st.integers(-(2**1000), 2**1000) | st.floats(allow_nan=False) | st.binary() | st.text()
)
_plain = st.recursive(
    _leaves,
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(st.text(string.printable) | st.integers(-(2**31), 2**31 - 1), inner)
    ),
    max_leaves=30,
)


@settings(max_examples=300, deadline=None)
@given(_plain)
def test_any_plain_data_survives(data: Any) -> None:
    frame = pack(from_note("x", plain(data, "data")))
    name, read = to_note(unpack(frame[PICKLED.prefix_size :]))
    assert (name, repr(read)) == ("x", repr(data))
    name, items = to_items(unpack(pack(from_items("x", {"y": data}))[PICKLED.prefix_size :]))
    assert (name, repr(items)) == ("x", repr({"y": data}))


def test_text_with_lone_surrogates_survives_where_it_can_occur(tmp_path: Path) -> None:
    error = "FileNotFoundError: " + b"caf\xe9".decode("utf-8", "surrogateescape")
    with History.create(tmp_path) as history:
        history.begin(a_header())
        history.append(dataclasses.replace(a_failure(1), error=error))
    assert read_snapshot(tmp_path).trial(1).error == error


def test_the_deepest_data_that_can_be_written_can_be_read(tmp_path: Path) -> None:
    data: Any = 1
    for _ in range(60):
        data = {"a": [data]} if _ % 2 else (data,)
        with History.create(tmp_path / str(_)) as history:
            history.begin(a_header())
            try:
                history.note("deep", data)
                history.start_run({"deep": data}, {})
                history.extend_note("deeper", {"deep": data})
            except HistoryError:
                break
        snapshot = read_snapshot(tmp_path / str(_))
        assert snapshot.notes == {"deep": data, "deeper": {"deep": data}}
        assert snapshot.run.settings == {"deep": data}
    else:
        pytest.fail("no limit was reached")


def test_the_folder_refuses_to_be_imported_under_its_own_name() -> None:
    root = Path(__file__).parents[2]
    run = subprocess.run(
        [sys.executable, "-c", "import history"], cwd=root, capture_output=True, text=True, check=False
    )
    assert run.returncode != 0
    assert "import quaver.history, not history" in run.stderr.splitlines()[-1]
