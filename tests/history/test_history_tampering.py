"""A snapshot that another process deletes, replaces, cuts or overwrites during a run is not lost silently."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from history_samples import ALL_FP32, ALL_INT8, BASELINE, NOTE, RUNS, a_header, a_trial, record_sample, start

from quaver.errors import HistoryError
from quaver.history import FILE_NAME, History, read_snapshot

RESCUED = f"{FILE_NAME}.rescued"


def deleted(path: Path) -> None:
    path.unlink()


def renamed(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))


def replaced(path: Path) -> None:
    """As `sed -i`, rsync and sync clients do it."""
    path.with_name("new").write_bytes(path.read_bytes()[:-40])
    path.with_name("new").replace(path)


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 10)


def grown(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"a second writer was here")


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def overwritten(path: Path) -> None:
    """Of the same size, so that only the content tells."""
    path.write_bytes(bytes(path.stat().st_size))


def removed_with_its_folder(path: Path) -> None:
    shutil.rmtree(path.parent)


CHANGES = {
    deleted: ("was deleted or renamed", FILE_NAME),
    renamed: ("was deleted or renamed", FILE_NAME),
    replaced: ("was replaced by another file", RESCUED),
    cut: ("was cut by somebody else", RESCUED),
    grown: ("was written to by somebody else", RESCUED),
    emptied: ("was cut by somebody else", RESCUED),
    overwritten: ("was overwritten by somebody else", RESCUED),
    removed_with_its_folder: ("was deleted or renamed", FILE_NAME),
}


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_all_records_are_written_to_a_new_file_and_the_run_continues_there(
    tmp_path: Path, change: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    reason, name = CHANGES[change]
    path = tmp_path / "run" / FILE_NAME
    with History.create(path) as history:
        history.begin(a_header())
        start(history, RUNS[0])
        history.append(BASELINE)
        history.note("probe", NOTE)
        history.append(a_trial(1))
        history.begin_trial(2, ALL_FP32)
        change(path)
        before = path.read_bytes() if path.exists() else None
        with pytest.warns(UserWarning, match=f"{reason} while a run wrote it. All its 1 trial.s. are in "):
            history.append(a_trial(2, ALL_FP32))
        assert reason in caplog.text
        assert history.path == tmp_path / "run" / name
        history.append(a_trial(3, ALL_INT8.fallback("/stem/Conv")))
        with pytest.raises(HistoryError, match="being written by"):
            History.resume(history.path)
    snapshot = read_snapshot(history.path)
    assert [trial.number for trial in snapshot.trials] == [1, 2, 3]
    assert (snapshot.header, snapshot.runs, snapshot.baseline) == (a_header(), RUNS[:1], BASELINE)
    assert (snapshot.notes, snapshot.damage) == ({"probe": NOTE}, None)
    if name == RESCUED:
        assert path.read_bytes() == before
    with History.resume(history.path) as history:
        history.append(a_trial(4, ALL_FP32.fallback()))


def test_a_file_that_is_missing_at_the_end_is_written_again(tmp_path: Path) -> None:
    history = History.create(tmp_path)
    history.begin(a_header())
    history.append(a_trial(1))
    history.path.unlink()
    with pytest.warns(UserWarning, match="was deleted"):
        history.close()
    assert read_snapshot(tmp_path).trials == (a_trial(1),)


def test_a_folder_that_is_missing_at_the_end_is_not_created(tmp_path: Path) -> None:
    history = History.create(tmp_path / "run")
    history.begin(a_header())
    shutil.rmtree(tmp_path)
    history.close()
    assert not tmp_path.exists()


def test_a_rescue_that_fails_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "run" / FILE_NAME
    with History.create(path) as history:
        history.begin(a_header())
        history.append(a_trial(1))
        shutil.rmtree(path.parent)
        path.parent.write_text("a file where the folder was")
        with pytest.raises(HistoryError, match=r"cannot be found .* its 1 trial.s. could not be written to a new file"):
            history.append(a_trial(2, ALL_FP32))


def test_a_new_modification_time_alone_is_ignored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    record_sample(tmp_path / FILE_NAME)
    with caplog.at_level(logging.WARNING), History.resume(tmp_path) as history:
        os.utime(history.path, ns=(1, 1))
        history.append(a_trial(5))
        assert history.path == tmp_path / FILE_NAME
    assert caplog.text == ""
