"""MXNet's engine: the thread that computes. Python knows neither its clock nor how many helpers it has.

Both are asked of the thread itself, by work that is pushed into its queue.
"""

from __future__ import annotations

import ctypes
import functools
import time
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any, TypeVar

from quaver.adapters.mxnet.load.sources import import_mxnet

T = TypeVar("T")
_CPU = 1
_Function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
_lock = Lock()
_set: list[int] = []  # the number of threads that was set last


class _Context(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_int), ("index", ctypes.c_int))


def inside(function: Callable[[], T], after: Sequence[Any] = ()) -> T:
    """Call a function in the thread that computes, once these arrays are there."""
    mx = import_mxnet()
    found: list[T] = []

    call = _Function(lambda context, parameter: found.append(function()))
    done = mx.nd.zeros((1,))
    reads = (ctypes.c_void_p * len(after))(*(array.handle for array in after))
    writes = (ctypes.c_void_p * 1)(done.handle)
    mx.base.check_call(
        mx.base._LIB.MXEnginePushSyncND(
            call, None, None, ctypes.byref(_Context(_CPU, 0)), reads, len(after), writes, 1, None, 0, b"quaver"
        )
    )
    done.wait_to_read()
    return found[0]


def processor_time() -> float:
    """Seconds that the thread which computes has spent on a processor."""
    return inside(time.thread_time)


def use_threads(threads: int) -> None:
    """Let what runs from now on use so many threads; 0 is MXNet's own choice."""
    with _lock:
        wanted = threads or _usual()
        if _set != [wanted]:
            inside(functools.partial(_openmp().omp_set_num_threads, wanted))
            _set[:] = [wanted]


@functools.cache
def _usual() -> int:
    """How many threads there are as long as nobody says otherwise."""
    return int(inside(_openmp().omp_get_max_threads))


@functools.cache
def _openmp() -> Any:
    """The library of threads that MXNet was linked with; it is loaded already."""
    return ctypes.CDLL("libgomp.so.1")
