"""One writer at a time: an advisory lock on the snapshot itself, gone with the process that holds it.

Where there is no `fcntl`, or a file system knows no locks, a file beside the snapshot names the owner instead. It is
made in one step or not at all, and looked at before each append; one that a killed process left behind is taken over.
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

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL
_MOST = 1000


class OwnerFile:
    """`history.snapshot.lock`: host, process, when that started, and a word that nobody else knows."""

    def __init__(self, path: Path, snapshot: Path, content: str) -> None:
        self._path, self._snapshot, self._content, self._pid = path, snapshot, content, os.getpid()

    @classmethod
    def take(cls, snapshot: Path) -> OwnerFile:
        """Become the owner, or say who is. An owner that died on this machine is no owner any more."""
        path = snapshot.with_name(f"{snapshot.name}.lock")
        content = f"{socket.gethostname()} {os.getpid()} {_started(os.getpid())} {secrets.token_hex(8)}"
        made = cls(path, snapshot, content)
        if made._make():
            made._remove_left_over()
            return made
        found = _read(path)
        if not is_dead(found):
            raise HistoryError(
                f"{snapshot} is being written by {_named(found)}. Wait until it has ended, or use another workspace. "
                f"If nothing writes it, remove {path}"
            )
        made._remove(found)
        if not made._make():
            raise HistoryError(f"{snapshot} is being written by {_named(_read(path))}. Use another workspace")
        made._remove_left_over()
        return made

    def check(self) -> None:
        """Raise if somebody else has taken the snapshot over."""
        found = _read(self._path)
        if found != self._content:
            raise HistoryError(
                f"{self._snapshot} is written by {_named(found)} now, so nothing more is written here. All that was "
                "recorded before is safe"
            )

    def release(self) -> None:
        """Let others write; not in a forked child, which owns nothing."""
        if os.getpid() == self._pid and _read(self._path) == self._content:
            with contextlib.suppress(OSError):
                self._path.unlink()

    def _make(self) -> bool:
        """Make the file, which fails if there is one."""
        try:
            descriptor = os.open(self._path, _NEW, 0o644)
        except FileExistsError:
            return False
        except OSError as error:
            raise _no_guard(self._snapshot, error) from error
        try:
            os.write(descriptor, self._content.encode())
        except OSError as error:
            with contextlib.suppress(OSError):
                self._path.unlink()
            raise _no_guard(self._snapshot, error) from error
        finally:
            os.close(descriptor)
        return True

    def _remove(self, dead: str) -> None:
        """Take away the file of a dead owner, and no other that came in its place meanwhile."""
        aside = self._path.with_name(f"{self._path.name}.{secrets.token_hex(4)}")
        with contextlib.suppress(FileNotFoundError):
            os.rename(self._path, aside)
            if _read(aside) != dead:
                with contextlib.suppress(OSError):
                    os.link(aside, self._path)
            os.unlink(aside)

    def _remove_left_over(self) -> None:
        """What was taken aside by a process that was killed just then."""
        with contextlib.suppress(OSError):
            for name in os.listdir(self._path.parent):
                if re.fullmatch(re.escape(self._path.name) + r"\.[0-9a-f]{8}", name):
                    self._path.with_name(name).unlink(missing_ok=True)


def read_owner(snapshot: Path) -> str:
    """What the owner file of a snapshot says; empty if there is none."""
    return _read(snapshot.with_name(f"{snapshot.name}.lock"))


def _read(path: Path) -> str:
    """What an owner file says; empty if there is none."""
    try:
        with path.open("rb") as file:
            return file.read(_MOST).decode(errors="replace")
    except OSError:
        return ""


def is_dead(content: str) -> bool:
    """Whether the owner was a process of this machine that is no more."""
    match content.split():
        case [host, pid, started, _] if host == socket.gethostname() and pid.isdigit() and len(pid) < 10:
            try:
                os.kill(int(pid), 0)
            except ProcessLookupError:
                return True
            except OSError:
                return False
            return _started(int(pid)) != started
    return False


def _started(pid: int) -> str:
    """When a process started, in the system's own words, so that another one of its number is known as such."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[19].decode()
    except (OSError, IndexError):  # Linux alone has it
        return "-"


def _named(content: str) -> str:
    match content.split():
        case [host, pid, _, _]:
            return f"process {pid} on {host}"
    return "another process"


def _no_guard(snapshot: Path, error: OSError) -> HistoryError:
    return HistoryError(
        f"{snapshot} cannot be locked, and no owner file can be made beside it: {error.strerror}. Two runs could spoil "
        "each other there; use a workspace on another disk"
    )


try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

logger = logging.getLogger(__name__)


class _Open(Protocol):
    def fileno(self) -> int: ...
    def close(self) -> None: ...


_held: weakref.WeakSet[_Open] = weakref.WeakSet()


class Lock:
    """What keeps others from writing a snapshot.

    Attributes:
        check: raises if it is not so any more.
        release: lets others write.
    """

    def __init__(self, owner: OwnerFile | None = None) -> None:
        self.check: Callable[[], None] = _nothing if owner is None else owner.check
        self.release: Callable[[], None] = _nothing if owner is None else owner.release


def lock(file: _Open, path: Path) -> Lock:
    """Make `file` the only writer of its snapshot until it is closed and released, or say who already is."""
    _held.add(file)
    if fcntl is not None:
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            return Lock()
        except BlockingIOError:
            raise HistoryError(
                f"{path} is being written by {_holder(file.fileno())}. Wait until it has ended, or use another "
                "workspace"
            ) from None
        except OSError as error:
            logger.info("%s cannot be locked (%s); a file beside it names the owner", path, error.strerror)
    return Lock(OwnerFile.take(path))


def _nothing() -> None:
    """The system watches over a real lock."""


def being_written(path: Path) -> bool:
    """Whether a process is writing a snapshot, found out without disturbing one that begins to."""
    if (owner := read_owner(path)) and not is_dead(owner):
        return True
    try:
        with path.open("rb") as file:
            if _LOCKS.exists():
                return _locker(file.fileno()) is not None
            if fcntl is None:
                return False
            try:
                fcntl.flock(file.fileno(), fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
    except OSError:
        pass
    return False


_LOCKS = Path("/proc/locks")  # Linux alone has it


def _holder(descriptor: int) -> str:
    """Who has the lock, as far as the system tells."""
    found = _locker(descriptor)
    if found is None:
        return "another process"
    return "this process" if found == os.getpid() else f"process {found}"


def _locker(descriptor: int) -> int | None:
    """The process that has the lock; None if the system tells of none."""
    status = os.fstat(descriptor)
    wanted = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    try:
        lines = _LOCKS.read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        match line.split():
            case [_, "FLOCK", _, "WRITE", pid, place, *_] if place == wanted and pid.isdigit() and int(pid) > 0:
                return int(pid)
    return None


def _close_in_child() -> None:
    """A forked worker must not keep the lock alive after its parent has died, nor write."""
    for file in list(_held):
        file.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)
