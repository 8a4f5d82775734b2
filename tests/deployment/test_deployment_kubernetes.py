"""The objects of docs/kubernetes.md: valid, connected to each other, and their commands tune a model."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import code_blocks
import kubernetes_validate
import numpy as np
import pytest
import yaml
from saved_models import MODEL

import quaver
from quaver.demo.data import digits
from quaver.demo.run import EVAL

PAGE = "docs/kubernetes.md"
VERSION = "1.30"


def objects() -> dict[tuple[str, str], Any]:
    """Return the objects by kind and name."""
    (text,) = (block.code for block in code_blocks.blocks(PAGE) if block.language == "yaml")
    return {(made["kind"], made["metadata"]["name"]): made for made in yaml.safe_load_all(text)}


def pod(kind: str, name: str) -> Any:
    return objects()[kind, name]["spec"]["template"]["spec"]


@pytest.mark.parametrize("key", objects())
def test_an_object_follows_the_schema_of_kubernetes(key: tuple[str, str]) -> None:
    kubernetes_validate.validate(objects()[key], VERSION, strict=True)


def test_the_validator_refuses_a_wrong_object() -> None:
    job = objects()["Job", "quaver-tune"]
    job["spec"]["template"]["spec"]["containers"][0]["comand"] = ["quaver"]
    with pytest.raises(kubernetes_validate.ValidationError, match="comand"):
        kubernetes_validate.validate(job, VERSION, strict=True)


def test_the_objects_refer_to_each_other() -> None:
    service = objects()["Service", "dask-scheduler"]
    labels = objects()["Deployment", "dask-scheduler"]["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    address = f"tcp://dask-scheduler:{service['spec']['ports'][0]['port']}"
    (worker,) = pod("Deployment", "dask-worker")["containers"]
    (tune,) = pod("Job", "quaver-tune")["containers"]
    assert address in worker["command"] and f"--scheduler {address}" in tune["command"][-1]
    workers = objects()["Deployment", "dask-worker"]["spec"]["replicas"]
    assert f"--jobs {workers} " in tune["command"][-1]
    assert len({container["image"] for container in (worker, tune)}) == 1


def test_the_commands_of_the_pods_tune_a_model_and_continue_a_run(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(MODEL.read_bytes())
    train, _, images, labels = digits()
    np.savez(tmp_path / "calib.npz", image=train[:64])
    np.savez(tmp_path / "test.npz", image=images)
    np.save(tmp_path / "y.npy", labels)
    (tmp_path / "my_eval.py").write_text(EVAL)
    bin_folder = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}"}
    log = (tmp_path / "log").open("w")
    started: list[subprocess.Popen[bytes]] = []

    def begin(words: list[str]) -> None:
        words = [sys.executable, "-m", "dask", *words[1:]] if words[0] == "dask" else words
        started.append(subprocess.Popen(words, cwd=tmp_path, env=environment, stdout=log, stderr=log))

    found = tmp_path / "scheduler.json"
    try:
        (scheduler,) = pod("Deployment", "dask-scheduler")["containers"]
        command = [*scheduler["command"], "--scheduler-file", str(found)]
        command[command.index("8786")] = "0"  # any free port
        begin(command)
        until = time.monotonic() + 120
        while not found.exists() or not found.read_text():
            assert time.monotonic() < until and started[0].poll() is None, (tmp_path / "log").read_text()
            time.sleep(0.2)
        port = yaml.safe_load(found.read_text())["address"].rsplit(":", 1)[1]
        here = f"tcp://127.0.0.1:{port}"
        (worker,) = pod("Deployment", "dask-worker")["containers"]
        for _ in range(2):
            begin([word.replace("tcp://dask-scheduler:8786", here) for word in worker["command"]])
        (tune,) = pod("Job", "quaver-tune")["containers"]
        shell, option, script = tune["command"]
        script = script.replace("tcp://dask-scheduler:8786", here).replace("--jobs 4", "--jobs 2")
        script = script.replace("--threads 4", "--threads 1 --objective int8_ops --max-trials 2")
        for _ in range(2):  # as a pod and its replacement
            done = subprocess.run(
                [shell, option, script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
            )
            assert done.returncode == 0, done.stderr
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait()
        log.close()
    assert (tmp_path / "model-int8.onnx").stat().st_size < MODEL.stat().st_size
    snapshot = quaver.read_snapshot(tmp_path / "run")
    assert all(trial.worker for trial in snapshot.trials)  # none ran in the process of the job
