"""Evaluate on a Dask cluster: here a scheduler and two workers, as separate processes on this machine.

On your own cluster only the address differs: `quaver tune ... --backend dask --scheduler tcp://host:8786`.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from importlib.resources import files
from pathlib import Path

import quaver
from quaver.demo.data import Accuracy, digits


def main() -> None:
    """Start the cluster, tune on it, and end it."""
    images, _, test_images, test_labels = digits()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "scheduler.json"
        at = ["--scheduler-file", str(place), "--no-dashboard"]
        commands = [["dask_scheduler", "--host", "tcp://127.0.0.1", "--port", "0", *at]]
        commands += [["dask_worker", "--nthreads", "1", "--local-directory", folder, *at]] * 2
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        cluster = [
            subprocess.Popen([sys.executable, "-m", f"distributed.cli.{name}", *rest], **quiet)
            for name, *rest in commands
        ]
        try:
            while not place.exists() or not place.read_text():
                time.sleep(0.1)
            from distributed import Client

            with Client(scheduler_file=str(place)) as client:
                result = quaver.fit(
                    str(files("quaver.demo") / "digits_dscnn.onnx"),
                    calib_dataloader=images[:64],
                    eval_func=Accuracy(test_images, test_labels),
                    executor=client,
                    objective="size",
                    workspace="dask_run",
                )
        finally:
            for process in cluster:
                process.terminate()
            for process in cluster:
                process.wait()
    print(result)
    print("evaluated by", *sorted({trial.worker for trial in result.trials}))


if __name__ == "__main__":
    main()
