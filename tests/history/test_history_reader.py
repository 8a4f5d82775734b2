"""Follow a growing snapshot: each byte is read once, and an incomplete frame does not count yet."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from history_samples import (
    ADDED,
    FRAMES,
    NOTE,
    RUNS,
    TRIALS,
    a_header,
    a_trial,
    frame_bounds,
    record_sample,
    trials_after,
)

from quaver.errors import HistoryError
from quaver.history import FILE_NAME, History, SnapshotReader, read_snapshot
from quaver.history.frames import MAGIC, PICKLED, pack


def test_a_poll_returns_appended_records(tmp_path: Path) -> None:
    reader = SnapshotReader(tmp_path)
    assert (reader.poll(), reader.changed) == (None, False)
    with History.create(tmp_path) as history:
        assert (reader.poll(), reader.changed) == (None, False)
        history.begin(a_header())
        first = reader.poll()
        assert first is not None and reader.changed
        assert (first.header, first.trials, first.runs) == (a_header(), (), ())
        for number in range(1, 4):
            history.append(a_trial(number))
            snapshot = reader.poll()
            assert reader.changed and snapshot == read_snapshot(tmp_path)
            assert (reader.poll() is snapshot, reader.changed) == (True, False)
        history.start_run({"seed": 1}, {})
        history.measure(2, {"user": 1.0})
        history.extend_note("probe", {"a": 1.0})
        assert reader.poll() == read_snapshot(tmp_path)
    assert first.trials == ()


def test_a_step_that_begins_and_ends_is_no_change(tmp_path: Path) -> None:
    reader = SnapshotReader(tmp_path)
    with History.create(tmp_path) as history:
        history.begin(a_header())
        history.start_run({}, {})
        history.append(a_trial(1))
        first, content = reader.poll(), reader._content
        for number in range(3):
            history.begin_step(f"measuring {number}")
            assert (reader.poll() is first, reader.changed) == (True, False)
            history.end_step()
            assert (reader.poll() is first, reader.changed) == (True, False)
        history.begin_step("measuring more")
        reader.poll()
        history.end_step()
        history.extend_note("probe", {"a": 1.0})
        assert reader.poll() == read_snapshot(tmp_path) and reader.changed
        assert reader._content is content


def test_a_returned_snapshot_does_not_change(tmp_path: Path) -> None:
    reader = SnapshotReader(tmp_path / FILE_NAME)
    with History.create(tmp_path) as history:
        history.begin(a_header())
        history.note("probe", dict(NOTE))
        history.append(a_trial(1))
        given = reader.poll()
        assert given is not None
        before = repr(given), dict(given.notes["probe"])
        history.measure(1, {"user": 2.5})
        history.extend_note("probe", ADDED)
        history.extend_note("probe", {"more": 1})
        history.append(a_trial(2))
        later = reader.poll()
        assert later is not None and later.notes["probe"] == NOTE | ADDED | {"more": 1}
        assert (repr(given), given.notes["probe"]) == before


def test_a_file_that_grows_byte_by_byte_gives_each_frame_when_it_is_whole(tmp_path: Path) -> None:
    whole = record_sample(tmp_path / "whole")
    bounds = frame_bounds(tmp_path / "whole")
    path = tmp_path / FILE_NAME
    reader = SnapshotReader(path)
    with path.open("ab", buffering=0) as file:
        for size, byte in enumerate(whole, 1):
            file.write(bytes([byte]))
            snapshot = reader.poll()
            frames = sum(size >= bound for bound in bounds[1:])
            assert reader.changed == (size in bounds[1:])
            if snapshot is None:
                assert frames == 0
            else:
                assert (snapshot.trials, snapshot.damage) == (trials_after(frames), None)
    assert reader.poll() == read_snapshot(path)
    assert snapshot is not None and snapshot.runs == RUNS


def test_a_repaired_torn_end_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    path.write_bytes(record_sample(path)[:-7])
    reader = SnapshotReader(path)
    before = reader.poll()
    assert before is not None and before.trials == TRIALS[:-1]
    with History.resume(path) as history:
        assert (reader.poll(), reader.changed) == (before, False)
        history.append(a_trial(4))
    after = reader.poll()
    assert after is not None and after.trials == (*TRIALS[:-1], a_trial(4))


def overwritten(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def replaced(path: Path, content: bytes) -> None:
    (path.parent / "new").write_bytes(content)
    (path.parent / "new").replace(path)


def removed_and_made(path: Path, content: bytes) -> None:
    path.unlink()
    path.write_bytes(content)


@pytest.mark.parametrize("change", [overwritten, replaced, removed_and_made])
@pytest.mark.parametrize("longer", [False, True])
def test_a_replaced_file_is_read_from_its_beginning(
    tmp_path: Path, change: Callable[[Path, bytes], None], longer: bool
) -> None:
    path = tmp_path / FILE_NAME
    record_sample(path)
    reader = SnapshotReader(path)
    reader.poll()
    with History.create(tmp_path / "other") as history:
        history.begin(a_header(model_fingerprint="cd" * 32))
        for number in range(50 if longer else 1):
            history.append(a_trial(number + 1))
    change(path, history.path.read_bytes())
    snapshot = reader.poll()
    assert reader.changed and snapshot == read_snapshot(path)
    assert snapshot.header.model_fingerprint == "cd" * 32
    assert len(snapshot.trials) == (50 if longer else 1)


def test_a_cut_file_is_read_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    whole = record_sample(path)
    reader = SnapshotReader(path)
    for number in (15, 9, FRAMES, 2):
        path.write_bytes(whole[: frame_bounds(path)[number]])
        snapshot = reader.poll()
        assert reader.changed and snapshot == read_snapshot(path)
        assert snapshot.trials == trials_after(number)
        path.write_bytes(whole)
    path.write_bytes(MAGIC)
    assert (reader.poll(), reader.changed) == (None, True)
    path.unlink()
    assert (reader.poll(), reader.changed) == (None, False)
    path.write_bytes(whole)
    assert reader.poll() == read_snapshot(path)


def test_a_removed_frame_is_forgotten_when_others_follow(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    reader = SnapshotReader(path)
    with History.create(path) as history:
        history.begin(a_header())
        before = path.read_bytes()
        history.append(a_trial(1))
        assert reader.poll() is not None
    path.write_bytes(before)
    with History.resume(path) as history:
        history.append(a_trial(1, score=0.5))
        history.append(a_trial(2))
    snapshot = reader.poll()
    assert snapshot is not None
    assert [trial.score for trial in snapshot.trials] == [0.5, 0.752]


def test_damage_in_the_middle_is_reported_and_a_restored_file_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    whole = bytearray(record_sample(path))
    place = frame_bounds(path)[9] + 30
    whole[place] ^= 1
    path.write_bytes(whole)
    reader = SnapshotReader(path)
    snapshot = reader.poll()
    assert snapshot is not None and "skipped: frame 10" in str(snapshot.damage)
    assert snapshot.trials == (TRIALS[0], *TRIALS[2:])
    whole[place] ^= 1
    path.write_bytes(whole)
    os.utime(path, ns=(1, 1))  # however coarse the clock
    snapshot = reader.poll()
    assert snapshot is not None and (snapshot.damage, snapshot.trials) == (None, TRIALS)


def test_an_invalid_frame_is_refused_at_every_poll(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    whole = record_sample(path)
    reader = SnapshotReader(path)
    reader.poll()
    path.write_bytes(whole + pack({"kind": "model"}))
    for _ in range(2):
        with pytest.raises(HistoryError, match="frame 19 is refused"):
            reader.poll()
    path.write_bytes(whole)
    assert reader.poll() == read_snapshot(path)
    path.write_bytes(whole + PICKLED.frame(b"\x80\x04cos\nsystem\n."))
    with pytest.raises(HistoryError, match="frame 19 is refused"):
        reader.poll()


def test_a_file_that_is_not_a_snapshot_is_refused_by_poll(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"version: 1.0, and long enough")
    with pytest.raises(HistoryError, match="its first line is different"):
        SnapshotReader(path).poll()
    with pytest.raises(HistoryError, match="is not a file"):
        SnapshotReader("/dev/null").poll()
    os.mkfifo(tmp_path / FILE_NAME)
    with pytest.raises(HistoryError, match="is not a file"):
        SnapshotReader(tmp_path).poll()


def read_bytes() -> int:
    """How many bytes this process has read so far, as the system counts."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(lines[0].removeprefix("rchar: "))


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="the system does not count what is read")
def test_a_poll_reads_only_new_bytes(tmp_path: Path) -> None:
    with History.create(tmp_path) as history:
        history.begin(a_header(calibration={"ranges": random.Random(1).randbytes(4_000_000)}))
        history.append(a_trial(1))
        reader = SnapshotReader(tmp_path)
        before = read_bytes()
        reader.poll()
        counting = read_bytes()
        assert counting - before > 4_000_000
        cost = read_bytes() - counting  # of counting itself
        for number in range(2, 12):
            history.append(a_trial(number))
            before = read_bytes()
            assert reader.poll() is not None
            assert reader.changed
            assert read_bytes() - before < cost + 2000
        before = read_bytes()
        reader.poll()
        assert read_bytes() - before <= cost


def test_polling_a_changing_file_equals_reading_it_from_the_beginning(tmp_path: Path) -> None:
    rng = random.Random(7)
    whole = record_sample(tmp_path / "whole")
    bounds = frame_bounds(tmp_path / "whole")
    path = tmp_path / FILE_NAME
    reader = SnapshotReader(tmp_path)
    for step in range(100):
        end = rng.choice(bounds[1:]) - rng.choice((0, 0, 0, 3))
        path.write_bytes(whole[:end])
        os.utime(path, ns=(step, step))
        snapshot = reader.poll()
        if end < bounds[1]:
            assert snapshot is None
        else:
            expected = read_snapshot(path)
            assert snapshot is not None
            assert (snapshot.trials, snapshot.notes, snapshot.runs, snapshot.starts, snapshot.baseline) == (
                expected.trials, expected.notes, expected.runs, expected.starts, expected.baseline,
            )  # fmt: skip
