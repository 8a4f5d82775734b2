"""Power cuts, bad disks and chance: the whole frames before the damage are always kept."""

from __future__ import annotations

import contextlib
import logging
import random
import resource
import signal
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from history_samples import (
    ALL_INT8,
    BASELINE,
    RUNS,
    TRIALS,
    a_header,
    a_trial,
    frame_bounds,
    payloads,
    record_sample,
    trials_after,
)

from quaver.errors import HistoryError
from quaver.history import FILE_NAME, History, Run, Snapshot, read_snapshot
from quaver.history.frames import MAGIC, frame

DATA = Path(__file__).parent / "data"


def test_a_snapshot_torn_at_any_byte_of_its_last_frame_loses_that_frame_alone(tmp_path: Path) -> None:
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
            assert history.next_number == 4
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
            history.append(a_trial(history.next_number))
    snapshot = read_snapshot(path)
    assert [trial.number for trial in snapshot.trials] == [1, 2, 3, 4, 5]
    assert snapshot.damage is None


def test_a_last_frame_whose_data_never_reached_the_disk_is_a_torn_one(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    whole = record_sample(path)
    for tail in (b"\0" * 4096, whole[-40:-20] + b"\0" * 20):
        path.write_bytes(whole + tail if tail[0] == 0 else whole[:-20] + b"\0" * 20)
        History.resume(path).close()
        assert read_snapshot(path).damage is None
    assert [entry.name for entry in tmp_path.iterdir()] == [FILE_NAME]


@pytest.mark.parametrize(
    "offset", [0, 3, 4, 19, 20, 50], ids=["length", "length high", "digest", "digest", "start", "inside"]
)
@pytest.mark.parametrize("number", [1, 2, 3, 5, 6, 8])
def test_damage_in_the_middle_keeps_what_is_before_and_a_copy_of_the_rest(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, number: int, offset: int
) -> None:
    path = tmp_path / FILE_NAME
    damaged = bytearray(record_sample(path))
    bounds = frame_bounds(path)
    damaged[bounds[number] + offset] ^= 0x11
    path.write_bytes(damaged)

    with caplog.at_level(logging.WARNING):
        snapshot = read_snapshot(path)
    assert (
        snapshot.damage == f"{len(damaged) - bounds[number]:,} bytes after frame {number} are unreadable (damaged data)"
    )
    assert snapshot.damage in caplog.text
    assert snapshot.trials == trials_after(number)
    assert snapshot.baseline == (BASELINE if number > 2 else None)
    assert snapshot.runs == RUNS[: number > 1]
    assert path.read_bytes() == damaged

    with History.resume(path) as history:
        assert tuple(history.trials) == snapshot.trials
        assert history.damage == snapshot.damage
        history.append(a_trial(history.next_number))
    assert (tmp_path / f"{FILE_NAME}.damaged").read_bytes() == damaged
    assert read_snapshot(path).damage is None


def test_an_earlier_copy_of_a_damaged_file_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    whole = bytearray(record_sample(path))
    whole[frame_bounds(path)[2] + 30] ^= 1
    for _ in range(3):
        path.write_bytes(whole)
        History.resume(path).close()
    copies = {entry.name for entry in tmp_path.iterdir()} - {FILE_NAME}
    assert copies == {f"{FILE_NAME}.damaged{end}" for end in ("", ".1", ".2")}


def test_a_damaged_header_is_refused_and_nothing_is_touched(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    damaged = bytearray(record_sample(path))
    damaged[len(MAGIC) + 60] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(HistoryError, match="unreadable"):
        read_snapshot(path)
    with pytest.raises(HistoryError, match=r"header of .* is damaged.*another workspace"):
        History.resume(path)
    assert path.read_bytes() == damaged


def test_a_run_killed_before_its_header_was_whole_can_begin_again(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    whole = record_sample(path)
    header_end = frame_bounds(path)[1]
    for cut in (*range(len(MAGIC) + 30), header_end - 1):
        path.write_bytes(whole[:cut])
        with pytest.raises(HistoryError, match="holds no trial yet"):
            read_snapshot(path)
        with History.resume(path) as history:
            assert history.header is None
            assert history.next_number == 1
            history.begin(a_header())
        assert path.read_bytes() == whole[:header_end]


def test_a_frame_that_claims_four_gigabytes_costs_no_memory(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    path.write_bytes(record_sample(path) + struct.pack("<I", 0xFFFFFFFF) + b"x" * 100)
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


def mutated(rng: random.Random, data: bytes) -> bytes:
    """`data` with one to four random flips, cuts, insertions, repetitions or overwritten runs."""
    result = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        if not result:
            break
        start = rng.randrange(len(result))
        end = min(len(result), start + rng.choice((1, 2, 4, 9, 60, 300)))
        match rng.randrange(6):
            case 0:
                result[start] ^= 1 << rng.randrange(8)
            case 1:
                result[start] = rng.choice(b"\0\xff.()}]cRoib\x80\x85\x86\x87\x8a\x8c\x93\x94\x95NKJGTXBCq\x71r\x8b")
            case 2:
                del result[start:]
            case 3:
                del result[start:end]
            case 4:
                result[start:start] = rng.randbytes(rng.choice((1, 4, 20, 200)))
            case 5:
                result[start:start] = result[start:end]
    return bytes(result)


def use(snapshot: Snapshot) -> None:
    """All that an engine does with what it reads."""
    assert repr(snapshot)
    for trial in snapshot.trials:
        assert snapshot.trial(trial.number) is trial
        assert str(trial)
        assert trial.config.fingerprint
        assert set(trial.config) == {op.name for op in snapshot.header.ops}
        assert snapshot.run_of(trial.number) in (*snapshot.runs, Run(0, snapshot.header.created, {}, {}))
        assert hash(trial) is not None
    assert snapshot.run.number == len(snapshot.runs)


def test_seven_thousand_files_with_random_damage_give_a_prefix_or_a_clear_error(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    whole = record_sample(path)
    rng = random.Random(20250131)
    states = [trials_after(frames) for frames in range(12)]
    prefixes: set[int] = set()
    errors = 0
    with time_limit(180), memory_limit(512):
        for _ in range(7000):
            path.unlink()  # some file systems sync a file that is written anew in place
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
                assert snapshot.trials in states
                assert snapshot.runs == RUNS[: len(snapshot.runs)]
                prefixes.add(len(snapshot.trials))
            assert time.perf_counter() - started < 5
    assert errors > 500
    assert prefixes == {0, 1, 2, 3, 4}


@pytest.mark.parametrize("schema", [1, 2])
def test_three_thousand_forged_files_with_right_checksums_give_a_snapshot_or_a_clear_error(
    tmp_path: Path, schema: int
) -> None:
    path = tmp_path / FILE_NAME
    path.write_bytes((DATA / f"schema{schema}.snapshot").read_bytes())
    whole = payloads(path)
    rng = random.Random(4711)
    accepted = refused = 0
    with time_limit(180), memory_limit(512):
        for _ in range(3000):
            forged = list(whole)
            for _ in range(rng.choice((1, 1, 2))):
                number = rng.randrange(len(forged))
                forged[number] = mutated(rng, forged[number])
            if rng.random() < 0.1:
                rng.shuffle(forged)
            if rng.random() < 0.1:
                forged.insert(rng.randrange(len(forged)), rng.choice(forged))
            path.unlink()
            path.write_bytes(MAGIC + b"".join(map(frame, forged)))
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


def test_resuming_any_of_five_hundred_damaged_files_leaves_a_whole_one(tmp_path: Path) -> None:
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
            history.append(a_trial(history.next_number, ALL_INT8.fallback("/body/MatMul")))
            assert read_snapshot(path).trials == tuple(history.trials)
        assert read_snapshot(path).damage is None
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
def test_a_file_that_is_no_snapshot_says_so_and_is_not_touched(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    for opens in (read_snapshot, History.resume):
        with pytest.raises(HistoryError, match=r"model\.onnx is not a history\.snapshot"):
            opens(path)
    with pytest.raises(HistoryError, match="exists already"):
        History.create(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize("opens", [read_snapshot, History.resume])
def test_a_path_without_a_snapshot_says_what_to_give(tmp_path: Path, opens: Any) -> None:
    with pytest.raises(HistoryError, match=rf"folder .* holds no {FILE_NAME}.*workspace"):
        opens(tmp_path)
    with pytest.raises(HistoryError, match=r"no snapshot at .*absent.*workspace"):
        opens(tmp_path / "absent")
    with pytest.raises(HistoryError, match="is not a file"):
        opens("/dev/null")
