"""MXNet's worker thread, which computes. Python knows neither its clock nor its number of OpenMP threads.

Both are asked of the thread itself, by functions that are pushed into its queue.

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
_set: list[int] = []  # the last number of threads


class _Context(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_int), ("index", ctypes.c_int))


def call_in_worker(function: Callable[[], T], after: Sequence[Any] = ()) -> T:
    """Call a function in the worker thread once these arrays are computed."""
    mx = import_mxnet()
    results: list[T] = []

    call = _Function(lambda context, parameter: results.append(function()))
    finished = mx.nd.zeros((1,))
    reads = (ctypes.c_void_p * len(after))(*(array.handle for array in after))
    writes = (ctypes.c_void_p * 1)(finished.handle)
    mx.base.check_call(
        mx.base._LIB.MXEnginePushSyncND(
            call, None, None, ctypes.byref(_Context(_CPU, 0)), reads, len(after), writes, 1, None, 0, b"quaver"
        )
    )
    finished.wait_to_read()
    return results[0]


def processor_time() -> float:
    """Return the processor seconds of the worker thread."""
    return call_in_worker(time.thread_time)


def use_threads(threads: int) -> None:
    """Set the OpenMP threads of later runs; 0 is MXNet's own choice."""
    with _lock:
        wanted = threads or _default_threads()
        if _set != [wanted]:
            call_in_worker(functools.partial(_openmp().omp_set_num_threads, wanted))
            _set[:] = [wanted]


@functools.cache
def _default_threads() -> int:
    """Return the number of threads that MXNet uses by default."""
    return int(call_in_worker(_openmp().omp_get_max_threads))


@functools.cache
def _openmp() -> Any:
    """Return the OpenMP library that MXNet is linked with, which is loaded already."""
    return ctypes.CDLL("libgomp.so.1")
