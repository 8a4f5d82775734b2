"""Every call that changes the disk, counted, and one of them gone wrong: refused, done by half, or the last one."""

from __future__ import annotations

import builtins
import errno
import io
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest import mock

ERRORS = {"ENOSPC": errno.ENOSPC, "EIO": errno.EIO, "full from here on": errno.ENOSPC}
FAULTS = (*ERRORS, "short write")
KILLS = ("killed before", "killed in the middle", "killed after")
_WRITES = ("write", "pwrite")
# What needs space, and fails while a disk is full.
_NEEDS_SPACE = (*_WRITES, "create", "mkdir")


class FaultyIO:
    """Calls below a folder, by name, in order; the one of that number meets the fault.

    Attributes:
        calls: the names of all calls so far.
        met: whether the fault has come to pass.
    """

    def __init__(self, folder: Path, number: int | None = None, fault: str = "") -> None:
        self._folder, self._number, self._fault = os.path.realpath(folder), number, fault
        self._ours: set[int] = set()
        self.calls: list[str] = []
        self.met = False

    @contextmanager
    def watching(self) -> Iterator[None]:
        """All I/O goes through here for a while."""
        opens = self._builtin_open(os.write)
        patched = {name: self._named(name, getattr(os, name)) for name in _NAMED}
        patched |= {"open": self._open(os.open), "close": self._close(os.close)}
        patched |= {"write": self._write(os.write), "pwrite": self._pwrite(os.pwrite)}
        with (
            mock.patch.multiple(os, **patched),
            mock.patch.object(io, "open", opens),
            mock.patch.object(builtins, "open", opens),
        ):
            yield

    def _call(self, name: str, does: Callable[[], Any], half: Callable[[], Any] | None = None) -> Any:
        number = len(self.calls)
        self.calls.append(name)
        if number != self._number:
            if self.met and self._fault == "full from here on" and name in _NEEDS_SPACE:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return does()
        self.met = True
        if self._fault in ERRORS:
            raise OSError(ERRORS[self._fault], os.strerror(ERRORS[self._fault]))
        if self._fault == "short write":
            return does() if half is None else half()
        if self._fault == "killed in the middle" and half is not None:
            half()
        elif self._fault == "killed after":
            with suppress(OSError):
                does()
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("unreachable")

    def _is_ours(self, path: Any) -> bool:
        return isinstance(path, str | os.PathLike) and os.path.realpath(path).startswith(self._folder)

    def _open(self, real: Any) -> Any:
        def opens(path: Any, flags: int, mode: int = 0o777, **rest: Any) -> int:
            if not self._is_ours(path):
                return int(real(path, flags, mode, **rest))
            name = "create" if flags & os.O_CREAT and not os.path.exists(path) else "open"
            descriptor: int = self._call(name, lambda: real(path, flags, mode, **rest))
            self._ours.add(descriptor)
            return descriptor

        return opens

    def _builtin_open(self, real_write: Any) -> Any:
        ours = self

        class Raw(io.FileIO):
            def write(self, data: Any) -> int:
                view = memoryview(data).cast("B")
                descriptor = self.fileno()
                return int(
                    ours._call(
                        "write",
                        lambda: real_write(descriptor, view),
                        lambda: real_write(descriptor, view[: (len(view) + 1) // 2]),
                    )
                )

        def opens(
            file: Any, mode: str = "r", buffering: int = -1, encoding: Any = None, *args: Any, **rest: Any
        ) -> Any:
            known = file in ours._ours if isinstance(file, int) else ours._is_ours(file)
            if not known or not set(mode) & set("wax+"):
                return _REAL_OPEN(file, mode, buffering, encoding, *args, **rest)
            plain = mode.replace("t", "").replace("b", "")
            raw = Raw(file, plain, opener=lambda path, flags: os.open(path, flags, 0o666))
            ours._ours.add(raw.fileno())
            if buffering == 0:
                return raw
            buffered = io.BufferedWriter(raw)
            return buffered if "b" in mode else io.TextIOWrapper(buffered, encoding, *args, **rest)

        return opens

    def _write(self, real: Any) -> Any:
        def write(descriptor: int, data: Any) -> int:
            if descriptor not in self._ours:
                return int(real(descriptor, data))
            half = memoryview(data)[: (len(data) + 1) // 2]
            return int(self._call("write", lambda: real(descriptor, data), lambda: real(descriptor, half)))

        return write

    def _pwrite(self, real: Any) -> Any:
        def pwrite(descriptor: int, data: Any, at: int) -> int:
            if descriptor not in self._ours:
                return int(real(descriptor, data, at))
            half = memoryview(data)[: (len(data) + 1) // 2]
            return int(self._call("pwrite", lambda: real(descriptor, data, at), lambda: real(descriptor, half, at)))

        return pwrite

    def _close(self, real: Any) -> Any:
        def close(descriptor: int) -> None:
            self._ours.discard(descriptor)
            real(descriptor)

        return close

    def _named(self, name: str, real: Any) -> Any:
        """A call whose first argument says whether it is one of ours: a descriptor, or a path."""

        def call(first: Any, *args: Any, **rest: Any) -> Any:
            ours = first in self._ours if isinstance(first, int) else self._is_ours(first)
            return self._call(name, lambda: real(first, *args, **rest)) if ours else real(first, *args, **rest)

        return call


_REAL_OPEN = io.open
_NAMED = ("fsync", "ftruncate", "replace", "rename", "unlink", "remove", "mkdir", "rmdir", "link")
