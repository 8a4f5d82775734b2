"""Workers of a Dask cluster: `dask.distributed`, of the extra [dask]."""

from __future__ import annotations

import concurrent.futures
import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

from quaver.engine.executors.base import Pool
from quaver.errors import ExecutorError

# How long to wait for a scheduler and its first worker, in seconds.
WAIT = 30.0


@contextlib.contextmanager
def open_dask(scheduler: str | None, jobs: int | None, threads: int, active: Any = None) -> Iterator[Pool]:
    """The workers of the cluster at an address, of joblib's active backend, or of the client that there is."""
    from distributed import Client, get_client

    if scheduler is not None:
        with _connected(scheduler) as client:
            yield pool_of(client, jobs, threads)
        return
    client = getattr(active, "client", None)
    if client is None:
        try:
            client = get_client()
        except ValueError as error:
            raise ExecutorError(
                "there is no Dask cluster to run on: give its address, as scheduler='tcp://host:8786', or connect with "
                "dask.distributed.Client(...) first"
            ) from error
    assert isinstance(client, Client)
    yield pool_of(client, jobs, threads)


def pool_of(client: Any, jobs: int | None, threads: int, executor: concurrent.futures.Executor | None = None) -> Pool:
    """The workers of a client; as many jobs as they have threads, unless it is said how many."""
    from distributed import KilledWorker
    from distributed.client import FutureCancelledError

    try:
        client.wait_for_workers(1, timeout=WAIT)
    except TimeoutError as error:
        raise ExecutorError(
            f"the Dask cluster at {client.scheduler.address} has no worker after {WAIT:.0f} s"
        ) from error
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    slots = sum(worker["nthreads"] for worker in workers)
    count = slots if jobs is None or jobs < 0 else jobs
    beside: Counter[str] = Counter()
    for worker in workers:
        beside[worker["host"]] += worker["nthreads"]
    each = threads or (1 if max(beside.values()) > 1 else 0)
    deaths = KilledWorker, FutureCancelledError
    if executor is not None:
        return Pool(executor, count, each, deaths)
    own = client.get_executor(pure=False)
    return Pool(own, count, each, deaths, lambda: own.shutdown(wait=False))


@contextlib.contextmanager
def _connected(address: str) -> Iterator[Any]:
    from distributed import Client

    try:
        client = Client(address, timeout=WAIT, set_as_default=False)
    except (OSError, ValueError) as error:
        raise ExecutorError(f"the Dask scheduler at {address!r} cannot be reached: {error}") from error
    try:
        yield client
    finally:
        client.close()
