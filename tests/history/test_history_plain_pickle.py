"""The standard library reads a snapshot: a loop of `pickle.load` over the file yields its records."""

from __future__ import annotations

import pickle
import pickletools
import shutil
from pathlib import Path
from typing import Any

import pytest
from history_samples import ALL_FP32, FRAMES, a_trial, next_number, payloads, record_sample

from quaver.history import FILE_NAME, History, read_snapshot, repair
from quaver.history.frames import LAYOUTS, MAGIC, PICKLED, PLAIN, unpack

DATA = Path(__file__).parent / "data"
BUILTINS = (type(None), bool, int, float, str, bytes, list, tuple, dict)


def load_all(path: Path) -> list[Any]:
    """Read a snapshot as a script does that does not know quaver."""
    records = []
    with path.open("rb") as file:
        while True:
            try:
                records.append(pickle.load(file))
            except EOFError:
                return records


def parts(data: Any) -> list[Any]:
    """Every object in a tree of containers."""
    inner = [*data, *data.values()] if isinstance(data, dict) else data if isinstance(data, list | tuple) else []
    return [data, *(part for item in inner for part in parts(item))]


def test_a_loop_of_pickle_load_yields_the_records(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    record_sample(path)
    records = load_all(path)
    assert [record["kind"] for record in records[:5]] == ["header", "run", "header", "run", "trial"]
    assert len(records) == FRAMES
    assert records == [unpack(payload) for payload in payloads(path)]
    assert {type(part) for record in records for part in parts(record)} <= set(BUILTINS)


def test_the_unpickler_written_in_python_and_pickletools_read_it_too(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    record_sample(path)
    with path.open("rb") as file:
        kinds = [pickle._Unpickler(file).load()["kind"] for _ in range(FRAMES)]  # type: ignore[attr-defined]
        assert not file.read()
    assert kinds == [record["kind"] for record in load_all(path)]
    with path.open("rb") as file:
        names = {code.name for _ in range(FRAMES) for code, _, _ in pickletools.genops(file)}
    assert not names & {"GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD", "INST", "OBJ", "NEWOBJ", "PERSID", "BINPERSID"}


def test_a_run_that_recorded_nothing_yields_nothing(tmp_path: Path) -> None:
    History.create(tmp_path).close()
    assert (tmp_path / FILE_NAME).read_bytes() == MAGIC
    assert load_all(tmp_path / FILE_NAME) == []


def test_every_record_is_there_before_an_interrupted_write(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    whole = record_sample(path)
    records = load_all(path)
    path.write_bytes(whole[:-10])
    with path.open("rb") as file:
        assert [pickle.load(file) for _ in range(FRAMES - 1)] == records[:-1]
        with pytest.raises((pickle.UnpicklingError, EOFError)):
            pickle.load(file)


def test_a_real_run_is_one(tmp_path: Path) -> None:
    path = DATA / "digits-3.snapshot"
    trials = [record for record in load_all(path) if record["kind"] == "trial"]
    assert [record["score"] for record in trials[1:]] == [trial.score for trial in read_snapshot(path).trials]


@pytest.mark.parametrize("name", ["schema1", "schema2-twice"])
def test_an_old_file_continues_in_its_own_layout_and_a_repair_writes_the_new_one(name: str, tmp_path: Path) -> None:
    path = Path(shutil.copy(DATA / f"{name}.snapshot", tmp_path / FILE_NAME))
    before = path.read_bytes()
    with History.resume(path) as history:
        history.start_run({}, {})
        history.append(a_trial(next_number(history), ALL_FP32))
    assert path.read_bytes().startswith(before) and before.startswith(PLAIN.magic)
    snapshot = read_snapshot(path)
    assert snapshot.damage is None
    with pytest.raises(pickle.UnpicklingError), path.open("rb") as file:
        pickle.load(file)
    repaired = repair(path)
    assert not repaired.lost
    assert read_snapshot(repaired.path).trials == snapshot.trials
    records = load_all(repaired.path)
    assert sum(record["kind"] == "trial" for record in records) == len(snapshot.trials) + 1


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("is_header_damaged", [False, True])
def test_the_layout_is_found_without_the_first_line(layout: Any, is_header_damaged: bool, tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    record_sample(path)
    frames = [layout.frame(payload) for payload in payloads(path)]
    if is_header_damaged:
        frames[0] = frames[0][:-20] + bytes(20)
    path.write_bytes(b"x" * len(layout.magic) + b"".join(frames))
    snapshot = read_snapshot(path)
    assert len(snapshot.trials) == 4
    assert str(snapshot.damage).startswith("its first line is damaged")


def test_the_first_line_can_be_read_by_a_person() -> None:
    assert PICKLED.magic.splitlines()[0].endswith(b"quaver history.snapshot")
