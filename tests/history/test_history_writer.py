"""One writer at a time. A full disk or a killed process loses at most the current trial."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from history_samples import ALL_INT8, TRIALS, a_failure, a_header, a_trial, next_number, record_sample

from quaver.errors import HistoryError
from quaver.history import FILE_NAME, History, read_snapshot
from quaver.history.frames import MAGIC

HOLD = """
import sys, time
from quaver.history import History
history = History.resume(sys.argv[1])
print("locked", flush=True)
time.sleep(60)
"""

FORK = """
import os, sys, time
from quaver.history import History
history = History.resume(sys.argv[1])
if os.fork() == 0:
    print(os.getpid(), flush=True)
time.sleep(60)
"""

FILL = """
import resource, sys
sys.path.insert(0, sys.argv[2])
from history_samples import a_failure, a_header, a_trial
from quaver.errors import HistoryError
from quaver.history import History
resource.setrlimit(resource.RLIMIT_FSIZE, (8000, resource.RLIM_INFINITY))
with History.create(sys.argv[1]) as history:
    history.begin(a_header())
    try:
        for number in range(1, 100):
            history.append(a_trial(number))
    except HistoryError as error:
        print(len(history.trials), error)
"""


@contextlib.contextmanager
def running(script: str, *arguments: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A real process that runs `script`, and the first line it printed."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def test_a_second_writer_is_refused_until_the_first_is_killed(tmp_path: Path) -> None:
    record_sample(tmp_path / FILE_NAME)
    with running(HOLD, tmp_path) as (process, line):
        assert line == "locked"
        who = f"process {process.pid}" if Path("/proc/locks").exists() else "another process"
        for opens in (History.resume, History.create):
            with pytest.raises(HistoryError, match=rf"is being written by {who}\. Wait .*another workspace") as caught:
                opens(tmp_path)
            assert str(tmp_path / FILE_NAME) in str(caught.value)
        assert read_snapshot(tmp_path).trials == TRIALS
        process.send_signal(signal.SIGKILL)
        process.wait()
        with History.resume(tmp_path) as history:
            history.append(a_trial(5))


def test_a_second_writer_in_the_same_process_is_refused_too(tmp_path: Path) -> None:
    with History.create(tmp_path), pytest.raises(HistoryError, match=r"being written by (this|another) process"):
        History.resume(tmp_path)
    History.resume(tmp_path).close()


def test_reading_does_not_loosen_the_lock(tmp_path: Path) -> None:
    with History.create(tmp_path) as history:
        history.begin(a_header())
        read_snapshot(tmp_path)
        with pytest.raises(HistoryError, match="being written"):
            History.resume(tmp_path)


def test_a_worker_that_outlives_its_parent_does_not_keep_the_lock(tmp_path: Path) -> None:
    record_sample(tmp_path / FILE_NAME)
    with running(FORK, tmp_path) as (process, worker):
        process.send_signal(signal.SIGKILL)
        process.wait()
        try:
            os.kill(int(worker), 0)
            History.resume(tmp_path).close()
        finally:
            os.kill(int(worker), signal.SIGKILL)


def test_an_existing_history_is_never_overwritten(tmp_path: Path) -> None:
    whole = record_sample(tmp_path / FILE_NAME)
    for path in (tmp_path, tmp_path / FILE_NAME):
        with pytest.raises(
            HistoryError, match=r"exists already.*resume='.*history\.snapshot'\), or use another workspace"
        ):
            History.create(path)
    assert (tmp_path / FILE_NAME).read_bytes() == whole


@pytest.mark.parametrize("content", [b"", MAGIC[:5], MAGIC])
def test_an_empty_history_may_be_taken_over(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE_NAME).write_bytes(content)
    with History.create(tmp_path) as history:
        history.begin(a_header())
    assert read_snapshot(tmp_path).header == a_header()


def test_the_folders_of_a_new_history_are_created(tmp_path: Path) -> None:
    History.create(tmp_path / "runs" / "today" / "my.snapshot").close()
    assert (tmp_path / "runs" / "today" / "my.snapshot").read_bytes() == MAGIC


def test_a_path_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HistoryError, match=r"cannot be created: .*another workspace"):
        History.create(tmp_path / "file" / "deeper" / FILE_NAME)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 64 KiB."""
    place = tmp_path / "small"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "quaver-test", str(place)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("mounting is not permitted; the file size limit test stands in")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk_loses_only_the_current_trial(small_disk: Path) -> None:
    (small_disk / "ballast").write_bytes(b"x" * 20_000)
    with History.create(small_disk) as history:
        history.begin(a_header())
        with pytest.raises(HistoryError) as caught:
            for number in range(1, 100):
                history.append(a_trial(number, error="x" * 5000))
        recorded = len(history.trials)
        assert 2 < recorded < 12
        message = str(caught.value)
        assert f"trial {recorded + 1} (score {0.75 + (recorded + 1) / 1000})" in message
        assert str(history.path) in message
        assert os.strerror(errno.ENOSPC) in message
        assert f"resume='{history.path}'" in message

        snapshot = read_snapshot(small_disk)
        assert (len(snapshot.trials), snapshot.damage) == (recorded, None)

        (small_disk / "ballast").unlink()
        history.append(a_trial(recorded + 1, error="x" * 5000))
    with History.resume(small_disk) as history:
        assert history.damage is None
        assert next_number(history) == recorded + 2


def test_a_file_size_limit_loses_only_the_current_trial(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FILL, str(tmp_path), str(Path(__file__).parent)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    recorded, message = run.stdout.split(" ", 1)
    assert f"trial {int(recorded) + 1} (score" in message
    assert os.strerror(errno.EFBIG) in message
    snapshot = read_snapshot(tmp_path)
    assert (len(snapshot.trials), snapshot.damage) == (int(recorded), None)
    with History.resume(tmp_path) as history:
        history.append(a_trial(next_number(history)))


def test_a_damaged_file_that_cannot_be_copied_is_not_repaired(small_disk: Path) -> None:
    with History.create(small_disk) as history:
        history.begin(a_header())
        for number in range(1, 9):
            history.append(a_trial(number, error="x" * 5000))
    damaged = history.path.read_bytes() + (5).to_bytes(4, "little") + b"rubbish, and more than five bytes of it"
    history.path.write_bytes(damaged)
    with pytest.raises(HistoryError, match=r"cannot be copied to .*\.damaged .*Nothing was changed"):
        History.resume(small_disk)
    assert history.path.read_bytes() == damaged
    assert [entry.name for entry in small_disk.iterdir()] == [FILE_NAME]


@pytest.mark.parametrize("accident", [OSError(errno.EIO, os.strerror(errno.EIO)), KeyboardInterrupt()])
def test_an_interrupted_append_leaves_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, accident: BaseException
) -> None:
    accidents = [accident]

    def fsync(descriptor: int) -> None:
        if accidents:
            raise accidents.pop()

    with History.create(tmp_path) as history:
        history.begin(a_header())
        before = history.path.read_bytes()
        monkeypatch.setattr(os, "fsync", fsync)
        with pytest.raises((HistoryError, KeyboardInterrupt)):
            history.append(a_trial(1))
        assert history.path.read_bytes() == before
        assert (history.trials, history.find(ALL_INT8), next_number(history)) == ([], None, 1)
        history.append(a_failure(1))
    assert read_snapshot(tmp_path).trials == (a_failure(1),)


def test_every_append_is_synced_before_it_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        real(descriptor)
        sizes.append(os.fstat(descriptor).st_size)

    monkeypatch.setattr(os, "fsync", fsync)
    with History.create(tmp_path) as history:
        history.begin(a_header())
        assert sizes[-1] == history.path.stat().st_size
        history.append(a_trial(1))
        assert sizes[-1] == history.path.stat().st_size
        history.note("probe", 1)
        assert sizes[-1] == history.path.stat().st_size
