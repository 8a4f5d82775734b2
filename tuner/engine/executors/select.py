"""Who evaluates, as users of joblib say it: by a number of jobs, joblib's active backend, a name, or an executor."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from quaver.engine.executors.base import Pool
from quaver.engine.executors.dask import open_dask, pool_of
from quaver.engine.executors.process_pool import LocalPool
from quaver.engine.executors.ray import open_ray
from quaver.errors import MissingPackageError, SettingsError
from quaver.suggestions import hint

BACKENDS = ("loky", "dask", "ray")
# What joblib's backends are called, and what they are here; None runs in this process.
_JOBLIB = {
    "LokyBackend": "loky",
    "MultiprocessingBackend": "loky",
    "DaskDistributedBackend": "dask",
    "RayBackend": "ray",
    "SequentialBackend": None,
}
_CLUSTERS: dict[str, Callable[..., contextlib.AbstractContextManager[Pool]]] = {"dask": open_dask, "ray": open_ray}


@dataclass(frozen=True, slots=True)
class ExecutorSpec:
    """What the settings say about who evaluates.

    Attributes:
        jobs: evaluations at once; -1 is one for each core or worker; None is one, or as joblib's context says.
        backend: "loky", "dask" or "ray"; None is joblib's active one.
        scheduler: the address of a cluster; None is the one that is connected already.
        isolate: one process of its own even if there is but one job.
        threads: of one inference; 0 leaves that open.
        executor: one of the user's, instead of a backend.
    """

    jobs: int | None = None
    backend: str | None = None
    scheduler: str | None = None
    isolate: bool = False
    threads: int = 0
    executor: Any = None


@contextlib.contextmanager
def open_pool(wish: ExecutorSpec) -> Iterator[Pool | None]:
    """The workers that were asked for; None if tasks are to be carried out in this process."""
    if wish.executor is not None:
        yield _given(wish)
        return
    active, jobs = _active(wish.jobs) if wish.backend is None else (None, wish.jobs)
    backend = wish.backend or ("loky" if active is None else _known(active))
    if backend is None or (backend == "loky" and jobs in (None, 1) and not wish.isolate):
        if wish.scheduler is not None:
            raise SettingsError(f"`scheduler` is {wish.scheduler!r}, and no backend to go with it: 'dask' or 'ray'")
        yield None
        return
    if backend == "loky":
        if wish.scheduler is not None:
            raise SettingsError("`scheduler` goes with the backends 'dask' and 'ray', not with 'loky'")
        count = _local_jobs(jobs)
        local = LocalPool(count)
        try:
            yield Pool(local, count, threads_each(wish.threads, count), stop=local.shutdown)
        finally:
            local.shutdown()
        return
    if backend not in _CLUSTERS:
        raise SettingsError(f"unknown backend {backend!r}; {hint(str(backend), BACKENDS)}")
    with contextlib.ExitStack() as stack:
        try:
            pool = stack.enter_context(_CLUSTERS[backend](wish.scheduler, jobs, wish.threads, active))
        except ImportError as error:
            raise MissingPackageError(f"backend {backend!r} needs: pip install 'quaver[{backend}]'") from error
        yield pool


def threads_each(wanted: int, jobs: int) -> int:
    """Threads of one inference, so that jobs on one machine do not fight for its cores; 0 leaves it to the runtime."""
    if jobs == 1:
        return wanted
    share = max(cores() // jobs, 1)
    return min(wanted, share) if wanted else share


def cores() -> int:
    """How many this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _given(wish: ExecutorSpec) -> Pool:
    if wish.backend is not None or wish.scheduler is not None:
        raise SettingsError("give `executor`, or `backend` and `scheduler`, not both")
    executor = wish.executor
    if hasattr(executor, "get_executor"):  # a distributed.Client
        return pool_of(executor, wish.jobs, wish.threads)
    if not isinstance(executor, concurrent.futures.Executor):
        raise SettingsError(
            f"`executor` must be a concurrent.futures.Executor or a dask.distributed.Client, not {executor!r:.100}"
        )
    client = getattr(executor, "_client", None)
    if client is not None and hasattr(client, "scheduler_info"):
        return pool_of(client, wish.jobs, wish.threads, executor)
    own = getattr(executor, "_max_workers", None) or cores()
    jobs = own if wish.jobs is None or wish.jobs < 0 else wish.jobs
    return Pool(executor, jobs, threads_each(wish.threads, jobs))


def _active(jobs: int | None) -> tuple[Any, int | None]:
    """joblib's active backend if somebody has chosen one, and how many jobs."""
    if "joblib" not in sys.modules:  # then nobody can have
        return None, jobs
    from joblib.parallel import get_active_backend

    backend, said = get_active_backend()
    usual = type(backend).__name__ == "LokyBackend"
    jobs = said if jobs is None else jobs
    return (None if usual else backend), (-1 if jobs is None and not usual else jobs)


def _known(backend: Any) -> str | None:
    for kind in type(backend).__mro__:
        if kind.__name__ in _JOBLIB:
            return _JOBLIB[kind.__name__]
    raise SettingsError(
        f"joblib's active backend is a {type(backend).__name__}, and trials run in processes of their own: use "
        "joblib.parallel_config with 'loky', 'dask' or 'ray'"
    )


def _local_jobs(jobs: int | None) -> int:
    if jobs is None:
        return 1
    return jobs if jobs > 0 else max(cores() + 1 + jobs, 1)
