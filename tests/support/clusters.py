"""A small Dask cluster of separate processes on this machine: a scheduler and workers, each with a nanny."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

SUPPORT = Path(__file__).parent


@contextlib.contextmanager
def dask_cluster(folder: Path, workers: int = 2) -> Iterator[str]:
    """The address of its scheduler. Whatever happens, all processes are gone afterwards."""
    paths = [str(SUPPORT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "DASK_DISTRIBUTED__WORKER__DAEMON": "True"}
    folder.mkdir(parents=True, exist_ok=True)
    found = folder / "scheduler.json"
    started: list[subprocess.Popen[bytes]] = []

    def start(*arguments: str) -> None:
        with open(folder / f"log-{len(started)}", "wb") as log:
            started.append(
                subprocess.Popen(
                    [sys.executable, "-m", "distributed.cli." + arguments[0], *arguments[1:]],
                    env=environment,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )

    at = ("--scheduler-file", str(found))
    try:
        start("dask_scheduler", "--host", "tcp://127.0.0.1", "--port", "0", "--no-dashboard", *at)
        for _ in range(workers):
            start(
                "dask_worker", *at, "--nthreads", "1", "--no-dashboard",
                "--local-directory", str(folder),
            )  # fmt: skip
        yield _address(found)
    finally:
        for process in started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _address(found: Path) -> str:
    for _ in range(300):
        with contextlib.suppress(OSError, ValueError):
            return str(json.loads(found.read_text())["address"])
        time.sleep(0.1)
    raise TimeoutError("the scheduler did not start")
