"""Choose the executor: a number of jobs, a backend by name, joblib's active backend, or the user's own executor.

A backend is one module of this package with a `BACKEND`, which is found by itself.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import importlib
import pkgutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from quaver.engine import executors
from quaver.engine.executors.base import Backend, Pool, PoolRequest, cores, threads_per_job
from quaver.engine.executors.dask import pool_of
from quaver.errors import MissingPackageError, SettingsError
from quaver.extras import install_command
from quaver.suggestions import hint
from quaver.types import ExecutorLike

# The backend of `n_jobs` alone.
DEFAULT = "loky"
# joblib's backend for work in this process.
SEQUENTIAL = "SequentialBackend"


@dataclass(frozen=True, slots=True)
class ExecutorSpec:
    """The settings that say what evaluates trials.

    Attributes:
        jobs: evaluations at once; -1 is one for each core or worker; None is one, or what joblib's context says.
        backend: the name of a backend; None is joblib's active one.
        scheduler: the address of a cluster; None is the connected one.
        isolate: whether a single job runs in a process of its own.
        threads: threads of one inference; 0 leaves that open.
        executor: an executor of the user's, instead of a backend.
    """

    jobs: int | None = None
    backend: str | None = None
    scheduler: str | None = None
    isolate: bool = False
    threads: int = 0
    executor: ExecutorLike = None


@functools.cache
def backends() -> Mapping[str, Backend]:
    """Return all backends by name: those of the modules of this package."""
    modules = (
        importlib.import_module(f"{executors.__name__}.{item.name}")
        for item in pkgutil.iter_modules(executors.__path__)
    )
    offered = [module.BACKEND for module in modules if isinstance(getattr(module, "BACKEND", None), Backend)]
    return {backend.name: backend for backend in offered}


@contextlib.contextmanager
def open_pool(spec: ExecutorSpec) -> Iterator[Pool | None]:
    """Open the workers that the settings ask for; yield None if trials are evaluated in this process."""
    if spec.executor is not None:
        yield _pool_of_executor(spec)
        return
    active, jobs = _active_backend(spec.jobs) if spec.backend is None else (None, spec.jobs)
    name = spec.backend or (DEFAULT if active is None else _name_of(active))
    if name is None or (name == DEFAULT and jobs in (None, 1) and not spec.isolate):
        if spec.scheduler is not None:
            raise SettingsError(f"`scheduler` is {spec.scheduler!r}, so name its backend: {_with_scheduler('or')}")
        yield None
        return
    if name not in backends():
        raise SettingsError(f"unknown backend {name!r}; {hint(str(name), list(backends()))}")
    backend = backends()[name]
    if spec.scheduler is not None and not backend.has_scheduler:
        raise SettingsError(f"`scheduler` goes with the backends {_with_scheduler('and')}, not with {name!r}")
    with contextlib.ExitStack() as stack:
        try:
            pool = stack.enter_context(backend.open(PoolRequest(spec.scheduler, jobs, spec.threads, active)))
        except ImportError as error:
            raise MissingPackageError(f"backend {name!r} needs: {install_command(name)}") from error
        yield pool


def _with_scheduler(word: str) -> str:
    names = [repr(name) for name, backend in backends().items() if backend.has_scheduler]
    return f" {word} ".join([", ".join(names[:-1]), names[-1]])


def _pool_of_executor(spec: ExecutorSpec) -> Pool:
    """Return the workers of the user's own executor."""
    if spec.backend is not None or spec.scheduler is not None:
        raise SettingsError("pass `executor`, or `backend` and `scheduler`, not both")
    executor = spec.executor
    if hasattr(executor, "get_executor"):  # a distributed.Client
        return pool_of(executor, spec.jobs, spec.threads)
    if not isinstance(executor, concurrent.futures.Executor):
        raise SettingsError(
            f"`executor` must be a concurrent.futures.Executor or a dask.distributed.Client, not {executor!r:.100}"
        )
    client = getattr(executor, "_client", None)
    if client is not None and hasattr(client, "scheduler_info"):
        return pool_of(client, spec.jobs, spec.threads, executor)
    workers = getattr(executor, "_max_workers", None) or cores()
    jobs = workers if spec.jobs is None or spec.jobs < 0 else spec.jobs
    return Pool(executor, jobs, threads_per_job(spec.threads, jobs))


def _active_backend(jobs: int | None) -> tuple[Any, int | None]:
    """Return joblib's active backend, if the user has chosen one, and the number of jobs."""
    if "joblib" not in sys.modules:  # then nobody can have chosen one
        return None, jobs
    from joblib.parallel import get_active_backend

    backend, active_jobs = get_active_backend()
    is_default = type(backend).__name__ == "LokyBackend"
    jobs = active_jobs if jobs is None else jobs
    return (None if is_default else backend), (-1 if jobs is None and not is_default else jobs)


def _name_of(joblib_backend: object) -> str | None:
    """Return the name of the backend that does what a backend of joblib does; None for work in this process."""
    for kind in type(joblib_backend).__mro__:
        if kind.__name__ == SEQUENTIAL:
            return None
        for name, backend in backends().items():
            if kind.__name__ in backend.joblib_classes:
                return name
    raise SettingsError(
        f"joblib's active backend is a {type(joblib_backend).__name__}, but trials run in processes of their own: use "
        f"joblib.parallel_config with one of {', '.join(map(repr, backends()))}"
    )
