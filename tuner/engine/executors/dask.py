"""Workers of a Dask cluster: `dask.distributed`, of the extra [dask]."""

from __future__ import annotations

import concurrent.futures
import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

from quaver.engine.executors.base import Backend, Pool, PoolRequest
from quaver.errors import ExecutorError

# Seconds to wait for a scheduler and its first worker. Judgement: workers of a cluster start within it.
MAX_WAIT = 30.0


@contextlib.contextmanager
def open_dask(request: PoolRequest) -> Iterator[Pool]:
    """Open the workers of the cluster at an address, of joblib's active backend, or of the connected client."""
    from distributed import Client, get_client

    if request.scheduler is not None:
        with _connected(request.scheduler) as client:
            yield pool_of(client, request.jobs, request.threads)
        return
    client = getattr(request.active, "client", None)
    if client is None:
        try:
            client = get_client()
        except ValueError as error:
            raise ExecutorError(
                "there is no Dask cluster to run on: pass its address, as scheduler='tcp://host:8786', or connect with "
                "dask.distributed.Client(...) first"
            ) from error
    assert isinstance(client, Client)
    yield pool_of(client, request.jobs, request.threads)


BACKEND = Backend("dask", open_dask, ("DaskDistributedBackend",))


def pool_of(client: Any, jobs: int | None, threads: int, executor: concurrent.futures.Executor | None = None) -> Pool:
    """Return the workers of a client, with as many jobs as they have threads unless `jobs` is given."""
    from distributed import KilledWorker
    from distributed.client import FutureCancelledError

    try:
        client.wait_for_workers(1, timeout=MAX_WAIT)
    except TimeoutError as error:
        raise ExecutorError(
            f"the Dask cluster at {client.scheduler.address} has no worker after {MAX_WAIT:.0f} s"
        ) from error
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    slots = sum(worker["nthreads"] for worker in workers)
    count = slots if jobs is None or jobs < 0 else jobs
    threads_on_host: Counter[str] = Counter()
    for worker in workers:
        threads_on_host[worker["host"]] += worker["nthreads"]
    each = threads or (1 if max(threads_on_host.values()) > 1 else 0)
    deaths = KilledWorker, FutureCancelledError
    if executor is not None:
        return Pool(executor, count, each, deaths)
    dask_executor = client.get_executor(pure=False)
    return Pool(dask_executor, count, each, deaths, lambda: dask_executor.shutdown(wait=False))


@contextlib.contextmanager
def _connected(address: str) -> Iterator[Any]:
    from distributed import Client

    try:
        client = Client(address, timeout=MAX_WAIT, set_as_default=False)
    except (OSError, ValueError) as error:
        raise ExecutorError(f"the Dask scheduler at {address!r} cannot be reached: {error}") from error
    try:
        yield client
    finally:
        client.close()
