"""Writes that were not synced are dropped or reordered at a crash: what was told of is there all the same."""

from __future__ import annotations

import io
import random
from pathlib import Path

from history_samples import a_header
from lost_writes import a_history

from quaver.history import FILE_NAME, History, read_snapshot
from quaver.history.contents import Content, read


def test_what_was_told_of_survives_any_crash(tmp_path: Path) -> None:
    disk = a_history(tmp_path / FILE_NAME, trials=12)
    states: set[bytes] = set()
    for content, told in disk.after_a_crash(random.Random(5), most=64):
        found = Content()
        read(io.BytesIO(content), tmp_path, found)
        numbers = {trial.number for trial in found.trials} | ({0} if found.baseline else set())
        assert told <= numbers
        assert not told or found.header == a_header()
        states.add(content)
    assert len(states) > 300


def test_a_history_goes_on_after_any_crash(tmp_path: Path) -> None:
    disk = a_history(tmp_path / FILE_NAME, trials=5)
    path = tmp_path / "crashed" / FILE_NAME
    path.parent.mkdir()
    for content, told in disk.after_a_crash(random.Random(6), most=8):
        path.unlink(missing_ok=True)
        path.write_bytes(content)
        with History.resume(path) as history:
            if history.header is None:
                history.begin(a_header())
            history.start_run({}, {})
            assert told <= {0, *(trial.number for trial in history.trials)}
        snapshot = read_snapshot(path)
        assert "unreadable" not in str(snapshot.damage)
        assert told <= {0, *(trial.number for trial in snapshot.trials)}
