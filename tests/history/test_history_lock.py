"""On a file system without locks, an owner file beside the snapshot excludes a second writer."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from history_samples import ALL_FP32, TRIALS, a_header, a_trial, record_sample

from quaver.errors import HistoryError
from quaver.history import FILE_NAME, History, read_snapshot

LOCK = f"{FILE_NAME}.lock"

# Holds a snapshot in a process in which no lock works, as on some network disks.
HOLD = """
import errno, fcntl, sys, time
def flock(*_):
    raise OSError(errno.ENOLCK, "No locks available")
fcntl.flock = flock
from quaver.history import History
history = History.resume(sys.argv[1])
print("owned", flush=True)
time.sleep(60)
"""


@pytest.fixture(autouse=True)
def no_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(*_: Any) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)


def test_a_second_writer_is_refused_and_nothing_is_left_behind(tmp_path: Path) -> None:
    whole = record_sample(tmp_path / FILE_NAME)
    with History.resume(tmp_path) as history:
        host = socket.gethostname()
        for opens in (History.resume, History.create):
            with pytest.raises(HistoryError, match=rf"is being written by process {os.getpid()} on {host}\. .*remove"):
                opens(tmp_path)
        history.append(a_trial(5))
    assert [entry.name for entry in tmp_path.iterdir()] == [FILE_NAME]
    assert history.path.read_bytes().startswith(whole)
    History.resume(tmp_path).close()


def test_the_owner_is_another_process_until_it_is_killed(tmp_path: Path) -> None:
    record_sample(tmp_path / FILE_NAME)
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "owned\n"
        with pytest.raises(HistoryError, match=f"is being written by process {process.pid}"):
            History.resume(tmp_path)
        assert read_snapshot(tmp_path).trials == TRIALS
        process.send_signal(signal.SIGKILL)
        process.wait()
        with History.resume(tmp_path) as history:
            history.append(a_trial(5))
    assert [entry.name for entry in tmp_path.iterdir()] == [FILE_NAME]


@pytest.mark.parametrize("content", ["", "rubbish", "elsewhere 17 4 abc", f"{socket.gethostname()} {10**30} 1 x"])
def test_an_owner_that_may_be_alive_is_not_replaced(tmp_path: Path, content: str) -> None:
    record_sample(tmp_path / FILE_NAME)
    (tmp_path / LOCK).write_text(content)
    with pytest.raises(HistoryError, match=r"being written by .*If nothing writes it, remove "):
        History.resume(tmp_path)
    assert (tmp_path / LOCK).read_text() == content


def test_a_later_process_with_the_same_number_is_not_the_owner(tmp_path: Path) -> None:
    record_sample(tmp_path / FILE_NAME)
    (tmp_path / LOCK).write_text(f"{socket.gethostname()} {os.getpid()} 1 abc")
    History.resume(tmp_path).close()


def test_leftovers_of_a_killed_process_are_removed_at_the_next_start(tmp_path: Path) -> None:
    record_sample(tmp_path / FILE_NAME)
    for name in (f"{LOCK}.0123abcd", f"{LOCK}.mine"):
        (tmp_path / name).touch()
    History.resume(tmp_path).close()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [FILE_NAME, f"{LOCK}.mine"]


def test_a_writer_that_was_replaced_stops_writing(tmp_path: Path) -> None:
    with History.create(tmp_path) as history:
        history.begin(a_header())
        before = history.path.read_bytes()
        (tmp_path / LOCK).write_text("elsewhere 17 4 abc")
        with pytest.raises(HistoryError, match="is written by process 17 on elsewhere now"):
            history.append(a_trial(1))
    assert history.path.read_bytes() == before
    assert (tmp_path / LOCK).exists()


def test_a_forked_child_does_not_release_the_lock(tmp_path: Path) -> None:
    with History.create(tmp_path) as history:
        history.begin(a_header())
        pid = os.fork()
        if pid == 0:
            history.close()
            os._exit(0)
        os.waitpid(pid, 0)
        assert (tmp_path / LOCK).exists()
        history.append(a_trial(1, ALL_FP32))


def test_a_disk_without_locks_and_owner_files_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record_sample(tmp_path / FILE_NAME)
    opens = os.open

    def refusing(path: Any, *args: Any) -> int:
        if str(path).endswith(".lock"):
            raise OSError(errno.EPERM, "Operation not permitted")
        return opens(path, *args)

    monkeypatch.setattr(os, "open", refusing)
    with pytest.raises(HistoryError, match=r"cannot be locked, and no owner file can be created .*another disk"):
        History.resume(tmp_path)
