"""Workers of a Ray cluster, of the extra [ray]."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

from quaver.engine.executors.base import Backend, Pool, PoolRequest
from quaver.errors import ExecutorError


class RayPool(concurrent.futures.Executor):
    """Runs each task as a remote call on a number of cores. Ray does not repeat dead tasks, because quaver does."""

    def __init__(self, cpus: int) -> None:
        self._cpus = cpus
        self._remote: dict[Callable[..., Any], Any] = {}
        self._refs: set[Any] = set()

    def submit(self, function: Callable[..., Any], /, *args: Any, **keywords: Any) -> Future[Any]:
        """Call a function on a worker."""
        import ray

        if function not in self._remote:
            self._remote[function] = ray.remote(num_cpus=self._cpus, max_retries=0)(function)
        reference = self._remote[function].remote(*args, **keywords)
        self._refs.add(reference)
        future: Future[Any] = reference.future()
        future.add_done_callback(lambda done: self._refs.discard(reference))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End running tasks by ending their processes."""
        import ray

        for reference in list(self._refs):
            with contextlib.suppress(Exception):
                ray.cancel(reference, force=True)


@contextlib.contextmanager
def open_ray(request: PoolRequest) -> Iterator[Pool]:
    """Open the workers of the cluster at an address, of the connected one, or of one started on this machine."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray
    from ray.exceptions import NodeDiedError, OutOfMemoryError, TaskCancelledError, WorkerCrashedError

    is_started_here = not ray.is_initialized()
    if is_started_here:
        try:
            ray.init(address=request.scheduler, log_to_driver=False, include_dashboard=False, configure_logging=False)
        except Exception as error:
            raise ExecutorError(f"the Ray cluster at {request.scheduler!r} cannot be reached: {error}") from error
    try:
        cpus = max(request.threads, 1)
        slots = max(int(ray.cluster_resources().get("CPU", 1)) // cpus, 1)
        pool = RayPool(cpus)
        deaths = (WorkerCrashedError, OutOfMemoryError, NodeDiedError, TaskCancelledError)
        try:
            yield Pool(
                pool, slots if request.jobs is None or request.jobs < 0 else request.jobs, cpus, deaths, pool.shutdown
            )
        finally:
            pool.shutdown()
    finally:
        if is_started_here:
            ray.shutdown()


BACKEND = Backend("ray", open_ray, ("RayBackend",))
