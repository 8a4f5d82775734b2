"""Power cuts, disk errors and random damage: the whole frames before the damage are always read."""

from __future__ import annotations

import contextlib
import io
import logging
import random
import resource
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from history_samples import (
    ALL_INT8,
    BASELINE,
    FRAMES,
    RUNS,
    TRIALS,
    a_header,
    a_trial,
    frame_bounds,
    next_number,
    payloads,
    record_sample,
)
from mutation import forged, mutated, use

from quaver.errors import HistoryError
from quaver.history import FILE_NAME, History, read_snapshot, repair
from quaver.history.contents import Content, read
from quaver.history.frames import MAGIC, PICKLED

DATA = Path(__file__).parent / "data"


def test_a_snapshot_torn_in_its_last_frame_loses_only_that_frame(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    whole = record_sample(path)
    *_, start, end = frame_bounds(path)
    assert end == len(whole)
    for cut in range(start, end):
        path.write_bytes(whole[:cut])
        snapshot = read_snapshot(path)
        assert snapshot.trials == TRIALS[:-1]
        assert (snapshot.damage is None) == (cut == start)
        with History.resume(path) as history:
            assert next_number(history) == 4
            history.append(TRIALS[-1])
        assert path.read_bytes() == whole
    assert [entry.name for entry in tmp_path.iterdir()] == [FILE_NAME]


def test_numbering_continues_after_a_torn_tail(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / FILE_NAME
    path.write_bytes(record_sample(path)[:-5])
    with caplog.at_level(logging.WARNING), History.resume(tmp_path) as history:
        assert history.damage is not None
        assert "interrupted write" in caplog.text
        for _ in range(2):
            history.append(a_trial(next_number(history)))
    snapshot = read_snapshot(path)
    assert [trial.number for trial in snapshot.trials] == [1, 2, 3, 4, 5]
    assert snapshot.damage is None


def test_a_last_frame_without_data_on_disk_counts_as_torn(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    whole = record_sample(path)
    for tail in (b"\0" * 4096, whole[-40:-20] + b"\0" * 20):
        path.write_bytes(whole + tail if tail[0] == 0 else whole[:-20] + b"\0" * 20)
        History.resume(path).close()
        assert read_snapshot(path).damage is None
    assert [entry.name for entry in tmp_path.iterdir()] == [FILE_NAME]


OFFSETS = {"opcodes": 1, "length": 4, "length high": 7, "digest": 8, "end of digest": 23, "start": 25, "inside": 55}


@pytest.mark.parametrize("place", OFFSETS)
@pytest.mark.parametrize("number", range(1, FRAMES))
def test_a_damaged_frame_loses_only_its_own_record(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, number: int, place: str
) -> None:
    path = tmp_path / FILE_NAME
    damaged = bytearray(record_sample(path))
    bounds = frame_bounds(path)
    damaged[bounds[number - 1] + OFFSETS[place]] ^= 0x11
    path.write_bytes(damaged)

    with caplog.at_level(logging.WARNING):
        snapshot = read_snapshot(path)
    size = bounds[number] - bounds[number - 1]
    assert snapshot.damage == f"1 damaged place(s) skipped: frame {number} ({size:,} bytes)"
    assert snapshot.damage in caplog.text
    expected = {8: TRIALS[1:], 10: (TRIALS[0], *TRIALS[2:]), 11: (a_trial(1), *TRIALS[1:])}
    expected[17] = (*TRIALS[:2], TRIALS[3])
    assert snapshot.trials == expected.get(number, TRIALS)
    assert snapshot.baseline == (None if number == 5 else BASELINE)
    assert (snapshot.header, snapshot.runs) == (a_header(), RUNS)
    assert path.read_bytes() == damaged

    with History.resume(path) as history:
        assert tuple(history.trials) == snapshot.trials
        assert history.damage == snapshot.damage
        history.append(a_trial(next_number(history)))
    assert path.read_bytes().startswith(damaged)
    assert read_snapshot(path).trials == (*snapshot.trials, a_trial(5))
    assert [entry.name for entry in tmp_path.iterdir()] == [FILE_NAME]

    repaired = repair(path)
    assert (repaired.path, repaired.trials) == (tmp_path / f"{FILE_NAME}.repaired", len(snapshot.trials) + 1)
    assert repaired.lost == (snapshot.damage,)
    whole = read_snapshot(repaired.path)
    assert whole.damage is None
    assert (whole.header, whole.runs, whole.starts) == (snapshot.header, snapshot.runs, snapshot.starts)
    assert (whole.trials, whole.baseline) == (read_snapshot(path).trials, snapshot.baseline)
    assert whole.notes == snapshot.notes


def test_one_flipped_bit_loses_at_most_one_trial(tmp_path: Path) -> None:
    whole = record_sample(tmp_path / FILE_NAME)
    lost = []
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        content = Content()
        read(io.BytesIO(damaged), tmp_path, content)
        assert (content.header, tuple(content.runs)) == (a_header(), RUNS)
        assert content.damage is not None
        lost.append(len(TRIALS) - len(content.trials))
    assert set(lost) == {0, 1}


def test_a_snapshot_with_both_headers_damaged_is_refused(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    damaged = bytearray(record_sample(path))
    bounds = frame_bounds(path)
    damaged[bounds[0] + 60] ^= 1
    damaged[bounds[2] + 60] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(HistoryError, match="unreadable"):
        read_snapshot(path)
    with pytest.raises(HistoryError, match=r"header of .* is damaged.*another workspace"):
        History.resume(path)
    with pytest.raises(HistoryError, match=r"cannot be repaired: .* unreadable"):
        repair(path)
    assert path.read_bytes() == damaged
    assert [entry.name for entry in tmp_path.iterdir()] == [FILE_NAME]


def test_a_run_with_both_records_damaged_still_counts(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    damaged = bytearray(record_sample(path))
    bounds = frame_bounds(path)
    for number in (1, 3):
        damaged[bounds[number] + 60] ^= 1
    path.write_bytes(damaged)
    snapshot = read_snapshot(path)
    assert [run.number for run in snapshot.runs] == [1, 2]
    assert (snapshot.runs[0].settings, snapshot.runs[1]) == ({}, RUNS[1])
    assert (snapshot.run_of(3), snapshot.trials) == (RUNS[1], TRIALS)


def test_resuming_a_file_with_one_header_adds_the_second(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    path.write_bytes((DATA / "schema1.snapshot").read_bytes())
    first = frame_bounds(path)[1]
    with History.resume(path) as history:
        history.start_run({"seed": 8}, {})
        assert tuple(history.trials) == read_snapshot(path).trials
    damaged = bytearray(path.read_bytes())
    damaged[first - 30] ^= 1
    path.write_bytes(damaged)
    snapshot = read_snapshot(path)
    assert (snapshot.header, len(snapshot.runs), len(snapshot.trials)) == (a_header(), 2, 4)


def test_a_repair_skips_and_reports_a_refused_frame(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    path.write_bytes(record_sample(path) + PICKLED.frame(b"\x80\x04cos\nsystem\n.") + b"rubbish")
    with pytest.raises(HistoryError, match="frame 19 is refused"):
        read_snapshot(path)
    for end in ("", ".1"):
        repaired = repair(tmp_path)
        assert repaired.path.name == f"{FILE_NAME}.repaired{end}"
        assert [said.split(":")[0] for said in repaired.lost] == [
            "frame 19 is refused",
            "7 bytes after frame 19 are unreadable (an interrupted write)",
        ]
        assert read_snapshot(repaired.path).trials == TRIALS


def test_garbage_at_the_end_is_cut_off_after_a_copy_is_made(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    whole = record_sample(path)
    rubbish = whole + (5).to_bytes(4, "little") + b"rubbish, and more than five bytes of it"
    for _ in range(3):
        path.write_bytes(rubbish)
        History.resume(path).close()
        assert path.read_bytes() == whole
    copies = {entry.name for entry in tmp_path.iterdir()} - {FILE_NAME}
    assert copies == {f"{FILE_NAME}.damaged{end}" for end in ("", ".1", ".2")}
    assert (tmp_path / f"{FILE_NAME}.damaged").read_bytes() == rubbish


def test_a_run_killed_while_writing_its_header_can_start_again(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    whole = record_sample(path)
    header_end = frame_bounds(path)[1]
    for cut in (*range(len(MAGIC) + 30), header_end - 1):
        path.write_bytes(whole[:cut])
        with pytest.raises(HistoryError, match="holds no trial yet"):
            read_snapshot(path)
        with History.resume(path) as history:
            assert history.header is None
            assert next_number(history) == 1
            history.begin(a_header())
        assert path.read_bytes() == whole[:header_end]


def test_a_frame_that_claims_four_gigabytes_costs_no_memory(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    path.write_bytes(record_sample(path) + PICKLED.prefix(0xFFFFFFFF, b"") + b"x" * 100)
    with memory_limit(256):
        assert read_snapshot(path).trials == TRIALS


@contextlib.contextmanager
def memory_limit(megabytes: int) -> Iterator[None]:
    """Let this process grow by so much and no more."""
    in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (in_use + megabytes * 2**20, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@contextlib.contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    def too_slow(*_: Any) -> None:
        pytest.fail(f"took more than {seconds} s")

    before = signal.signal(signal.SIGALRM, too_slow)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def test_random_damage_gives_the_whole_records_or_a_clear_error(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    whole = record_sample(path)
    rng = random.Random(20250131)
    recorded = {*TRIALS, a_trial(1)}
    counts: Counter[int] = Counter()
    errors = 0
    with time_limit(180), memory_limit(512):
        for _ in range(7000):
            path.unlink()  # some file systems sync a file that is rewritten in place
            path.write_bytes(mutated(rng, whole))
            started = time.perf_counter()
            try:
                snapshot = read_snapshot(path)
            except HistoryError as error:
                errors += 1
                assert str(path) in str(error)
            else:
                use(snapshot)
                assert snapshot.header == a_header()
                assert recorded.issuperset(snapshot.trials)
                assert all(run in RUNS or not run.settings for run in snapshot.runs)
                counts[len(snapshot.trials)] += 1
            assert time.perf_counter() - started < 5
    assert errors > 100
    assert set(counts) == {0, 1, 2, 3, 4}
    assert counts[3] + counts[4] > 4000


@pytest.mark.parametrize("schema", [1, 2, 3])
def test_forged_files_with_valid_checksums_give_a_snapshot_or_a_clear_error(tmp_path: Path, schema: int) -> None:
    path = tmp_path / FILE_NAME
    path.write_bytes((DATA / f"schema{schema}.snapshot").read_bytes())
    whole = payloads(path)
    rng = random.Random(4711)
    accepted = refused = 0
    with time_limit(180), memory_limit(512):
        for _ in range(3000):
            path.unlink()
            path.write_bytes(forged(rng, whole))
            try:
                snapshot = read_snapshot(path)
            except HistoryError as error:
                refused += 1
                assert str(path) in str(error)
            else:
                accepted += 1
                use(snapshot)
    assert refused > 1500
    assert accepted > 50


def test_resuming_a_damaged_file_leaves_a_whole_one(tmp_path: Path) -> None:
    whole = record_sample(tmp_path / "whole")
    rng = random.Random(99)
    resumed = 0
    for number in range(500):
        path = tmp_path / str(number) / FILE_NAME
        path.parent.mkdir()
        damaged = mutated(rng, whole)
        path.write_bytes(damaged)
        try:
            history = History.resume(path)
        except HistoryError:
            assert path.read_bytes() == damaged
            continue
        with history:
            if history.header is None:
                history.begin(a_header())
            history.append(a_trial(next_number(history), ALL_INT8.fallback("/body/MatMul")))
            assert read_snapshot(path).trials == tuple(history.trials)
        assert "unreadable" not in str(read_snapshot(path).damage)
        resumed += 1
    assert resumed > 200


@pytest.mark.parametrize("content", [b"", b"quaver"])
def test_an_empty_file_says_so(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / FILE_NAME
    path.write_bytes(content)
    with pytest.raises(HistoryError, match="holds no trial yet") as caught:
        read_snapshot(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("content", [b"\0", b"version: 1.0\n", random.Random(3).randbytes(5000)])
def test_a_file_that_is_not_a_snapshot_is_refused_and_not_changed(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    for opens in (read_snapshot, History.resume):
        with pytest.raises(HistoryError, match=r"model\.onnx is not a history\.snapshot"):
            opens(path)
    with pytest.raises(HistoryError, match="exists already"):
        History.create(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize("opens", [read_snapshot, History.resume])
def test_a_path_without_a_snapshot_is_refused_with_advice(tmp_path: Path, opens: Any) -> None:
    with pytest.raises(HistoryError, match=rf"folder .* holds no {FILE_NAME}.*workspace"):
        opens(tmp_path)
    with pytest.raises(HistoryError, match=r"no snapshot at .*absent.*workspace"):
        opens(tmp_path / "absent")
    with pytest.raises(HistoryError, match="is not a file"):
        opens("/dev/null")
