"""Snapshots of old versions can be listed, recovered and resumed."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from history_digits import MADE, SETTINGS
from history_samples import (
    ADDED,
    ALL_INT8,
    BASELINE,
    BY_A_WORKER,
    NOTE,
    RUNS,
    TRIALS,
    a_header,
    a_trial,
    next_number,
    record_sample,
)

import quaver
from quaver.adapters import AdapterOptions, load_model
from quaver.command.main import main
from quaver.demo.data import Accuracy, digits
from quaver.errors import CalibrationError, HistoryError
from quaver.history import FILE_NAME, SCHEMA, Header, History, Run, read_snapshot
from quaver.ops import FLOAT, INT8, Op, OpConfig, QuantConfig

DATA = Path(__file__).parent / "data"
MODEL = Path(__file__).parents[1] / "data" / "digits_resnet.onnx"
SCHEMAS = range(1, SCHEMA + 1)


def test_there_is_a_fixture_of_every_schema() -> None:
    assert {path.name for path in DATA.iterdir()} == {
        "schema2-twice.snapshot",
        *(f"{kind}{schema}.snapshot" for kind in ("schema", "digits-") for schema in SCHEMAS),
    }


def test_schema_1_stays_readable() -> None:
    """The fixture was written once, and is never written again, by `history_samples.record_sample` of version 0.1.0."""
    snapshot = read_snapshot(DATA / "schema1.snapshot")
    assert snapshot.damage is None
    assert snapshot.header == a_header()
    settings = {"relative": 0.01, "seed": 7, "timeout": 0, "strategy": "auto", "rules": [("Conv.*", "fp32")]}
    run = Run(1, a_header().created, settings, {"quaver": "0.1.0", "onnxruntime": "1.23.0"})
    assert snapshot.runs == (run,)
    assert snapshot.run == run == snapshot.run_of(0) == snapshot.run_of(4)
    assert snapshot.baseline == BASELINE
    assert snapshot.trials == (a_trial(1), *TRIALS[1:])
    assert snapshot.notes == {"probe": NOTE}


@pytest.mark.parametrize("name", ["schema2", "schema2-twice", "schema3"])
def test_schemas_2_and_3_stay_readable(name: str) -> None:
    """Each was written once, and is never written again, by `history_samples.record_sample`.

    The second and third hold header and runs twice, and trials that are begun.
    """
    snapshot = read_snapshot(DATA / f"{name}.snapshot")
    assert snapshot.damage is None
    assert (snapshot.header, snapshot.runs, snapshot.notes) == (a_header(), RUNS, {"probe": NOTE | ADDED})
    assert (snapshot.baseline, snapshot.trials) == (BASELINE, TRIALS)


def test_schema_3_is_written_byte_for_byte(tmp_path: Path) -> None:
    assert record_sample(tmp_path / FILE_NAME) == (DATA / "schema3.snapshot").read_bytes()


def test_the_worker_of_a_trial_is_recorded(tmp_path: Path) -> None:
    with History.create(tmp_path / FILE_NAME) as history:
        history.begin(a_header())
        history.append(BASELINE)
        history.append(BY_A_WORKER)
    assert read_snapshot(tmp_path / FILE_NAME).trials == (BY_A_WORKER,)


def test_a_file_of_schema_1_continues_in_schema_2(tmp_path: Path) -> None:
    path = shutil.copy(DATA / "schema1.snapshot", tmp_path / FILE_NAME)
    before = path.read_bytes()
    with History.resume(path) as history:
        assert history.start_run({"seed": 8}, {"quaver": "0.2.0"}).number == 2
        history.append(a_trial(next_number(history)))
        history.measure(2, {"user": 1.0})
        history.extend_note("probe", ADDED)
        assert history.find(ALL_INT8) == a_trial(5)
    assert path.read_bytes().startswith(before)
    snapshot = read_snapshot(path)
    assert snapshot.trials == tuple(history.trials)
    assert [snapshot.run_of(number).settings["seed"] for number in (0, 4, 5)] == [7, 7, 8]
    assert snapshot.trial(2).measured == {"latency": 0.41, "user": 1.0}
    assert snapshot.notes == {"probe": NOTE | ADDED}


@pytest.mark.parametrize("schema", SCHEMAS)
def test_a_run_of_an_old_version_is_listed(schema: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", str(DATA / f"digits-{schema}.snapshot")]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows[2][:6] == ["fp32", "0.994437", "-", "-", "0", "17"]
    for number in range(1, MADE + 1):
        star = "*" if number == 1 else ""
        assert rows[2 + number][:6] == [
            f"{number}{star}", "0.993046", "0.001391", "no", str(17 - number), str(number),
        ]  # fmt: skip


@pytest.mark.parametrize("schema", SCHEMAS)
def test_every_trial_of_an_old_version_is_recovered_byte_for_byte(schema: int) -> None:
    snapshot = read_snapshot(DATA / f"digits-{schema}.snapshot")
    assert snapshot.baseline is not None and len(snapshot.trials) == MADE
    for trial in (snapshot.baseline, *snapshot.trials):
        assert len(trial.model_hash) == 64
        recovered = quaver.recover(MODEL, snapshot.path, trial.number)
        assert hashlib.sha256(recovered.SerializeToString()).hexdigest() == trial.model_hash == recovered.sha256


@pytest.mark.parametrize("schema", SCHEMAS)
def test_a_run_of_an_old_version_is_resumed_and_evaluates_nothing_twice(schema: int, tmp_path: Path) -> None:
    path = shutil.copy(DATA / f"digits-{schema}.snapshot", tmp_path / FILE_NAME)
    before = read_snapshot(path)
    train, _, images, labels = digits()
    scores: list[float] = []

    def counted(model: Any) -> float:
        scores.append(Accuracy(images, labels)(model))
        return scores[-1]

    settings = {**SETTINGS, "absolute": 0.0, "timeout": 1e6, "max_trials": MADE + 2}
    # The strategy of today measures more than that of old did, on the samples that the run was calibrated with.
    result = quaver.fit(MODEL, calib_dataloader=train[:64], eval_func=counted, resume=path, **settings)
    assert [trial.score for trial in result.trials[MADE:]] == scores
    assert len(scores) == 2 and len({trial.config for trial in result.trials}) == MADE + 2
    after = read_snapshot(path)
    assert (after.baseline, after.trials[:MADE]) == (before.baseline, before.trials)
    assert {name: after.notes[name] for name in before.notes} == before.notes
    assert [after.run_of(number).number for number in range(MADE + 3)] == [1] * (MADE + 1) + [2, 2]
    assert after.run.settings["max_trials"] == MADE + 2
    for number in (1, MADE + 2):
        assert quaver.recover(MODEL, path, number).sha256 == after.trial(number).model_hash


@pytest.mark.parametrize("schema", SCHEMAS)
def test_a_resumed_old_run_asks_for_samples_that_the_strategy_needs(schema: int, tmp_path: Path) -> None:
    path = shutil.copy(DATA / f"digits-{schema}.snapshot", tmp_path / FILE_NAME)
    _, _, images, labels = digits()
    settings = {**SETTINGS, "timeout": 1e6, "max_trials": MADE + 2}
    with pytest.raises(CalibrationError, match="pass calib_dataloader, also to a resumed run"):
        quaver.fit(MODEL, eval_func=Accuracy(images, labels), resume=path, **settings)


def as_if(path: Path, change: Callable[[tuple[Op, ...]], tuple[Op, ...]]) -> Path:
    """The run as a version would have recorded it that found other ops, or had other choices on offer."""
    real = read_snapshot(DATA / "digits-2.snapshot")
    assert real.baseline is not None
    ops = change(real.header.ops)
    with History.create(path) as history:
        history.begin(replace(real.header, ops=ops))
        history.start_run(real.run.settings, {"onnx": "0.5"})
        for trial in (real.baseline, *real.trials):
            history.append(
                replace(trial, config=QuantConfig((op.name, trial.config.get(op.name, FLOAT)) for op in ops))
            )
        for name, data in real.notes.items():
            history.note(name, data)
    return history.path


def resume(path: Path) -> quaver.TuneResult:
    settings = {**SETTINGS, "max_trials": MADE}
    return quaver.fit(MODEL, eval_func=lambda model: 1 / 0, resume=path, **settings)


def one_choice_alone(ops: tuple[Op, ...]) -> tuple[Op, ...]:
    return tuple(replace(op, choices=(FLOAT,)) for op in ops)


def other_choices(ops: tuple[Op, ...]) -> tuple[Op, ...]:
    return tuple(replace(op, choices=(OpConfig(INT8, "moving_average"), *op.choices)) for op in ops)


def other_kinds_and_nodes(ops: tuple[Op, ...]) -> tuple[Op, ...]:
    return tuple(replace(op, kind="FusedConv", nodes=()) for op in ops)


def another_order(ops: tuple[Op, ...]) -> tuple[Op, ...]:
    return ops[::-1]


@pytest.mark.parametrize("change", [one_choice_alone, other_choices, other_kinds_and_nodes, another_order])
def test_changed_choices_kinds_and_nodes_do_not_prevent_recovery(
    change: Callable[[tuple[Op, ...]], tuple[Op, ...]], tmp_path: Path
) -> None:
    path = as_if(tmp_path, change)
    for number in (0, 2):
        recovered = quaver.recover(MODEL, path, number)
        assert recovered.sha256 == read_snapshot(path).trial(number).model_hash
    result = resume(path)
    assert len(result.trials) == MADE and result.best is not None


def without_an_op(ops: tuple[Op, ...]) -> tuple[Op, ...]:
    return tuple(op for op in ops if op.name not in SETTINGS["op_name_dict"])


def test_an_op_unknown_to_the_old_version_runs_in_fp32(tmp_path: Path) -> None:
    path = as_if(tmp_path, without_an_op)
    snapshot = read_snapshot(path)
    assert len(snapshot.header.ops) == 16
    for trial in snapshot.trials:
        assert quaver.recover(MODEL, path, trial.number).sha256 == trial.model_hash


def test_a_run_is_not_resumed_with_a_new_op(tmp_path: Path) -> None:
    path = as_if(tmp_path, without_an_op)
    before = path.read_bytes()
    message = r"cannot be resumed: .* finds the op '/features/features\.1/Add' .* can still be recovered; .* new run"
    with pytest.raises(HistoryError, match=message):
        resume(path)
    assert path.read_bytes() == before


def with_ghosts(ops: tuple[Op, ...]) -> tuple[Op, ...]:
    return (*ops, *(Op(f"/ghost.{index}", "Conv", (), (FLOAT,)) for index in range(3)))


def test_a_missing_op_is_named_with_advice(tmp_path: Path) -> None:
    path = as_if(tmp_path, with_ghosts)
    message = r"for the op '/ghost\.0', which .* does not find in the model \(and 2 more like it\)\. Use the version"
    for call in (lambda: quaver.recover(MODEL, path, 1), lambda: resume(path)):
        with pytest.raises(HistoryError, match=message):
            call()


def test_a_choice_that_cannot_be_built_is_reported_with_both_versions(tmp_path: Path) -> None:
    real = read_snapshot(DATA / "digits-2.snapshot")
    name = real.header.ops[0].name
    with History.create(tmp_path) as history:
        history.begin(real.header)
        history.start_run({}, {"quaver": "9.9"})
        history.append(replace(real.trial(1), config=real.trial(1).config.replace({name: OpConfig(INT8, "psychic")})))
    message = (
        rf"trial 1 cannot be rebuilt: it runs '{name}' with a choice .* used quaver 9\.9; here are quaver .* Install"
    )
    with pytest.raises(HistoryError, match=message):
        quaver.recover(MODEL, history.path, 1)


def test_a_model_of_another_framework_is_refused(tmp_path: Path) -> None:
    adapter = load_model(MODEL, AdapterOptions())
    with History.create(tmp_path) as history:
        history.begin(Header(adapter.fingerprint, "abacus", adapter.ops(), {}, "now"))
    adapter.close()
    with pytest.raises(HistoryError, match=r"holds no baseline yet"):
        quaver.recover(MODEL, tmp_path, 0)
    with pytest.raises(HistoryError, match=r"belongs to a model of abacus, not of onnxrt"):
        resume(history.path)
