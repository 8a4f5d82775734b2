"""Evaluate trials on a Dask cluster: a scheduler and two workers, as separate processes on this machine.

On your own cluster, only the address differs: `quaver tune ... --backend dask --scheduler tcp://host:8786`.
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
    """Start the cluster, tune on it, and stop it."""
    images, _, test_images, test_labels = digits()
    with tempfile.TemporaryDirectory() as folder:
        address_file = Path(folder) / "scheduler.json"
        scheduler = ["--scheduler-file", str(address_file), "--no-dashboard"]
        commands = [["dask_scheduler", "--host", "tcp://127.0.0.1", "--port", "0", *scheduler]]
        commands += [["dask_worker", "--nthreads", "1", "--local-directory", folder, *scheduler]] * 2
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        cluster = [
            subprocess.Popen([sys.executable, "-m", f"distributed.cli.{name}", *rest], **quiet)
            for name, *rest in commands
        ]
        try:
            while not address_file.exists() or not address_file.read_text():
                time.sleep(0.1)
            from distributed import Client

            with Client(scheduler_file=str(address_file)) as client:
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
