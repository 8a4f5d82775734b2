"""Advisory locks between handles and processes."""

import subprocess
import sys

import pytest

from quaver.files import locks


def test_a_second_handle_gets_no_exclusive_lock(tmp_path):
    with open(tmp_path / "file", "w") as first, open(tmp_path / "file") as second:
        assert locks.try_acquire(first)
        assert not locks.try_acquire(second)
        assert not locks.try_acquire(second, shared=True)


def test_shared_locks_exclude_only_an_exclusive_one(tmp_path):
    with open(tmp_path / "file", "w") as first, open(tmp_path / "file") as second:
        locks.acquire(first, shared=True)
        assert locks.try_acquire(second, shared=True)
        assert not locks.try_acquire(second)


def test_the_lock_is_released_after_the_block(tmp_path):
    with open(tmp_path / "file", "w") as first, open(tmp_path / "file") as second:
        with locks.locked(first):
            assert not locks.try_acquire(second)
        assert locks.try_acquire(second)


def test_a_killed_process_leaves_no_lock(tmp_path):
    program = "import sys, time, fcntl; f = open(sys.argv[1], 'w'); fcntl.flock(f, fcntl.LOCK_EX); print('locked'); "
    child = subprocess.Popen(
        [sys.executable, "-c", program + "sys.stdout.flush(); time.sleep(60)", str(tmp_path / "file")],
        stdout=subprocess.PIPE,
    )
    assert child.stdout is not None and child.stdout.readline() == b"locked\n"
    with open(tmp_path / "file") as file:
        assert not locks.try_acquire(file)
        child.kill()
        child.wait()
        assert locks.try_acquire(file)


def test_a_file_system_without_locks_is_reported(tmp_path, monkeypatch):
    def refuse(file, mode):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(locks.fcntl, "flock", refuse)
    with open(tmp_path / "file", "w") as file, pytest.raises(OSError, match="not supported"):
        locks.try_acquire(file)
