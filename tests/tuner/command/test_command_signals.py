from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

from command_samples import COMMAND, environment, make_folder, tune_words

SLEEPY = """
import time

from my_eval import accuracy as quick, only_fp32
import beside


def _wait(number):
    if len((beside.HERE / "calls").read_text()) == number:
        (beside.HERE / "waiting").touch()
        time.sleep(60)


def first(model):
    score = quick(model)
    _wait(1)
    return score


def third(model):
    score = only_fp32(model)
    _wait(3)
    return score
"""


def interrupted(folder: Path, function: str) -> subprocess.CompletedProcess[str]:
    """Start a run, wait until its evaluation sleeps, press Ctrl-C."""
    make_folder(folder)
    (folder / "sleepy.py").write_text(SLEEPY)
    words = [word.replace("my_eval.py:", "sleepy.py:") for word in tune_words(function=function)]
    process = subprocess.Popen(
        [sys.executable, "-c", RESTORE, *words],
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        end = time.monotonic() + 60
        while not (folder / "waiting").exists():
            assert process.poll() is None and time.monotonic() < end, process.communicate()
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
    return subprocess.CompletedProcess(COMMAND, process.returncode, out, err)


# A test run that was started in the background hands down an ignored SIGINT.
RESTORE = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from quaver.command.main import main
sys.exit(main())
"""


def test_ctrl_c_gives_the_best_so_far_and_the_way_to_go_on(tmp_path: Path) -> None:
    done = interrupted(tmp_path, "third")
    assert done.returncode == 3, done.stderr
    assert done.stdout.startswith("CRITERION NOT MET") and "(interrupted)" in done.stdout
    assert "(trial 1 of 1)" in done.stdout
    assert "resume the interrupted run" in done.stdout and "--resume run" in done.stdout
    assert "Traceback" not in done.stderr
    assert (tmp_path / "run" / "best_model.onnx").exists()


def test_ctrl_c_before_any_result_gives_130(tmp_path: Path) -> None:
    done = interrupted(tmp_path, "first")
    assert done.returncode == 130
    assert "\nquaver: interrupted before there was a result" in done.stderr
    assert "Traceback" not in done.stderr and done.stdout == "" and done.stderr.count("interrupted") == 1
    assert not (tmp_path / "run").exists()  # there is nothing to resume
