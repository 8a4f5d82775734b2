"""Ctrl-C and SIGTERM while four workers evaluate: the best so far is kept, and nothing else is left."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from processes import command, environment, said

# eval_func is a function of a script, which no worker can import. It tells who runs it; after eight calls each takes
# for ever.
SCRIPT = """
import time
closeness = Closeness(chain())

def eval_func(model):
    with open(sys.argv[1] + ".pids", "a+") as file:
        file.seek(0)
        before = len(file.readlines())
        file.write(f"{os.getpid()} {before}\\n")
    if before >= 8:
        time.sleep(3600)
    return closeness(model)

result = summary(tune(sys.argv[1], eval_func, n_jobs=4, width=16, timeout=3600, strategy="random"))
tell("result", result, sorted(os.listdir(sys.argv[1])))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("everybody", [True, False])  # a terminal sends it to all processes, a scheduler may to one
def test_nothing_is_left_running_and_nothing_in_temporary_folders(
    number: signal.Signals, everybody: bool, tmp_path: Path
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    process = subprocess.Popen(
        command(SCRIPT, tmp_path / "run"),
        env=environment(TMPDIR=str(temporary)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        pids = _when_four_are_stuck(tmp_path / "run.pids", process)
        if everybody:
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
        out, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0, errors
    _, result, files = said(out)[0]
    assert result["reason"] == "interrupted" and len(result["trials"]) >= 4
    assert files == ["best_model.onnx", "history.snapshot", "quaver.log", "quaver.yaml"]
    assert "Traceback" not in errors
    time.sleep(1)
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
    assert not list(temporary.iterdir())


def _when_four_are_stuck(path: Path, process: subprocess.Popen[str]) -> set[str]:
    for _ in range(300):
        lines = path.read_text().splitlines() if path.exists() else []
        stuck = {line.split()[0] for line in lines if int(line.split()[1]) >= 8}
        if len(stuck) == 4:
            return stuck
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)
    raise AssertionError(f"only {stuck} are at an evaluation without end")
