"""One writer per snapshot: an advisory lock on the file, which the system releases when the process ends.

On a file system without locks, an owner file beside the snapshot names the writer instead. It is created atomically and
checked before each append. The owner file of a dead process is replaced.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import secrets
import socket
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from quaver.errors import HistoryError
from quaver.files.locks import try_acquire

logger = logging.getLogger(__name__)

_CREATE_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL
# Judgement: an owner file holds about 60 bytes; a larger file was not written by quaver.
_MAX_OWNER_BYTES = 1000
# Only Linux lists the holders of locks.
_SYSTEM_LOCKS = Path("/proc/locks")


class SnapshotFile(Protocol):
    """An open file that can be locked and closed."""

    def fileno(self) -> int: ...
    def close(self) -> None: ...


# The files that a forked child has to close.
_locked_files: weakref.WeakSet[SnapshotFile] = weakref.WeakSet()


class Lock:
    """The right to write one snapshot.

    Attributes:
        check: raises HistoryError if another process has taken the snapshot over.
        release: lets other processes write.
    """

    def __init__(self, owner: OwnerFile | None = None) -> None:
        self.check: Callable[[], None] = _do_nothing if owner is None else owner.check
        self.release: Callable[[], None] = _do_nothing if owner is None else owner.release


def _do_nothing() -> None:
    """The system enforces and releases an advisory lock by itself."""


def lock(file: SnapshotFile, path: Path) -> Lock:
    """Make `file` the only writer of its snapshot until it is closed and the lock is released.

    Raises:
        HistoryError: another process writes the snapshot, or the disk supports neither locks nor owner files.
    """
    _locked_files.add(file)
    try:
        if try_acquire(file.fileno()):
            return Lock()
    except OSError as error:
        logger.info("%s cannot be locked (%s); an owner file beside it is used instead", path, error.strerror)
        return Lock(OwnerFile.create(path))
    raise HistoryError(
        f"{path} is being written by {_describe_holder(file.fileno())}. Wait until it has ended, or use another "
        "workspace"
    )


def is_being_written(path: Path) -> bool:
    """Return True if a process is writing the snapshot, without blocking one that is about to start."""
    if (owner := read_owner(path)) and not is_dead(owner):
        return True
    try:
        with path.open("rb") as file:
            if _SYSTEM_LOCKS.exists():
                return _lock_holder(file.fileno()) is not None
            return not try_acquire(file.fileno(), shared=True)
    except OSError:
        return False


def _describe_holder(descriptor: int) -> str:
    pid = _lock_holder(descriptor)
    if pid is None:
        return "another process"
    return "this process" if pid == os.getpid() else f"process {pid}"


def _lock_holder(descriptor: int) -> int | None:
    """Return the process that holds the lock; None if the system does not tell."""
    status = os.fstat(descriptor)
    file_id = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    try:
        lines = _SYSTEM_LOCKS.read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        match line.split():
            case [_, "FLOCK", _, "WRITE", pid, locked_id, *_] if locked_id == file_id and pid.isdigit() and int(pid):
                return int(pid)
    return None


def _close_in_child() -> None:
    """Close all snapshots: a forked worker must not write, nor keep the lock after its parent has died."""
    for file in list(_locked_files):
        file.close()


os.register_at_fork(after_in_child=_close_in_child)


class OwnerFile:
    """`history.snapshot.lock`, which holds the host, the process, its start time and a random token."""

    def __init__(self, path: Path, snapshot: Path, content: str) -> None:
        self._path, self._snapshot, self._content, self._pid = path, snapshot, content, os.getpid()

    @classmethod
    def create(cls, snapshot: Path) -> OwnerFile:
        """Become the owner of the snapshot; replace an owner that died on this machine.

        Raises:
            HistoryError: another process owns the snapshot, or no owner file can be created.
        """
        path = snapshot.with_name(f"{snapshot.name}.lock")
        content = f"{socket.gethostname()} {os.getpid()} {_start_time(os.getpid())} {secrets.token_hex(8)}"
        owner = cls(path, snapshot, content)
        if not owner._create():
            other = _read(path)
            if not is_dead(other):
                raise HistoryError(
                    f"{snapshot} is being written by {_describe_owner(other)}. Wait until it has ended, or use another "
                    f"workspace. If nothing writes it, remove {path}"
                )
            owner._remove_dead(other)
            if not owner._create():
                raise HistoryError(
                    f"{snapshot} is being written by {_describe_owner(_read(path))}. Use another workspace"
                )
        owner._remove_leftovers()
        return owner

    def check(self) -> None:
        """Raise HistoryError if another process has taken the snapshot over."""
        content = _read(self._path)
        if content != self._content:
            raise HistoryError(
                f"{self._snapshot} is written by {_describe_owner(content)} now, so this run stops writing to it. "
                "Everything recorded before is safe"
            )

    def release(self) -> None:
        """Remove the file, except in a forked child, which owns nothing."""
        if os.getpid() == self._pid and _read(self._path) == self._content:
            with contextlib.suppress(OSError):
                self._path.unlink()

    def _create(self) -> bool:
        """Create the file; return False if one exists."""
        try:
            descriptor = os.open(self._path, _CREATE_NEW, 0o644)
        except FileExistsError:
            return False
        except OSError as error:
            raise _no_lock(self._snapshot, error) from error
        try:
            os.write(descriptor, self._content.encode())
        except OSError as error:
            with contextlib.suppress(OSError):
                self._path.unlink()
            raise _no_lock(self._snapshot, error) from error
        finally:
            os.close(descriptor)
        return True

    def _remove_dead(self, dead: str) -> None:
        """Remove the file of a dead owner, but no file that another process created meanwhile."""
        aside = self._path.with_name(f"{self._path.name}.{secrets.token_hex(4)}")
        with contextlib.suppress(FileNotFoundError):
            os.rename(self._path, aside)
            if _read(aside) != dead:
                with contextlib.suppress(OSError):
                    os.link(aside, self._path)
            os.unlink(aside)

    def _remove_leftovers(self) -> None:
        """Remove files that a process was killed over while it replaced a dead owner."""
        with contextlib.suppress(OSError):
            for name in os.listdir(self._path.parent):
                if re.fullmatch(re.escape(self._path.name) + r"\.[0-9a-f]{8}", name):
                    self._path.with_name(name).unlink(missing_ok=True)


def read_owner(snapshot: Path) -> str:
    """Return the content of a snapshot's owner file; empty if there is none."""
    return _read(snapshot.with_name(f"{snapshot.name}.lock"))


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_MAX_OWNER_BYTES).decode(errors="replace")
    except OSError:
        return ""


def is_dead(content: str) -> bool:
    """Return True if the owner was a process of this machine that has ended."""
    match content.split():
        case [host, pid, started, _] if host == socket.gethostname() and pid.isdigit() and len(pid) < 10:
            try:
                os.kill(int(pid), 0)
            except ProcessLookupError:
                return True
            except OSError:
                return False
            return _start_time(int(pid)) != started
    return False


def _start_time(pid: int) -> str:
    """Return the start time of a process, which tells it from a later process with the same number."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[19].decode()
    except (OSError, IndexError):  # only Linux has this file
        return "-"


def _describe_owner(content: str) -> str:
    match content.split():
        case [host, pid, _, _]:
            return f"process {pid} on {host}"
    return "another process"


def _no_lock(snapshot: Path, error: OSError) -> HistoryError:
    return HistoryError(
        f"{snapshot} cannot be locked, and no owner file can be created beside it: {error.strerror}. Two runs could "
        "overwrite each other there; use a workspace on another disk"
    )
