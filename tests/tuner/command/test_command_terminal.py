from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

from command_samples import COMMAND, environment, make_folder, tune, tune_words

SLOW = """
import sys
import quaver.engine.evaluation
quaver.engine.evaluation.SLOW_SECONDS, quaver.engine.evaluation.SLOW_FACTOR = 0.2, 0
from quaver.command.main import main
sys.exit(main())
"""
SLEEPY = """
import time
from my_eval import only_fp32

calls = []


def sleepy(model):
    calls.append(model)
    time.sleep(0.7 if len(calls) == 2 else 0)
    return only_fp32(model)
"""


def in_a_terminal(folder: Path, words: list[str], start: tuple[str, ...] = COMMAND) -> tuple[int, str]:
    """Run the command with a pseudo-terminal for all its streams."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*start, *words], cwd=folder, env=environment(COLUMNS="120"), stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    seen = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        seen += part
    os.close(ours)
    return process.wait(timeout=60), seen.decode()


def test_a_terminal_shows_the_stages_the_trials_and_the_time_left(tmp_path: Path) -> None:
    make_folder(tmp_path)
    code, seen = in_a_terminal(tmp_path, tune_words("--max-trials", 3, function="only_fp32"))
    assert code == 3
    assert "calibrating" in seen and re.search(r"\d/64", seen)  # a bar of 64 samples
    assert "tuning 3 ops with strategy basic" in seen
    assert "fp32      score 1" in seen
    for number in (1, 2, 3):
        assert f"trial {number}   score 0.5, loss 50.00%, not met, 3 int8 / 0 fp32 ops" in seen
    assert "| best 0.5 (loss 50.00%, not met)" in seen and " left" in seen
    assert "CRITERION NOT MET" in seen


def test_a_probe_has_a_bar(tmp_path: Path) -> None:
    make_folder(tmp_path)
    (tmp_path / "mine.py").write_text(
        "import quaver\n\n\nclass Mine(quaver.Strategy):\n    name = 'mine'\n\n"
        "    def propose(self, space, probe):\n        yield space.all_int8().fallback(*probe.ranking()[:1])\n"
    )
    code, seen = in_a_terminal(tmp_path, tune_words("--strategy", "mine.py:Mine", function="only_fp32"))
    assert code == 3
    assert "measuring the sensitivity of ops" in seen and "1/3" in seen


def test_quiet_leaves_only_the_result(tmp_path: Path) -> None:
    make_folder(tmp_path)
    code, seen = in_a_terminal(tmp_path, tune_words("--quiet", "--relative", 0.05))
    assert code == 0
    assert seen.startswith("Criterion met") and "\x1b" not in seen


def test_an_evaluation_that_seems_to_hang_is_told_of_even_when_quiet(tmp_path: Path) -> None:
    make_folder(tmp_path)
    (tmp_path / "sleepy.py").write_text(SLEEPY)
    words = [word.replace("my_eval.py:only_fp32", "sleepy.py:sleepy") for word in tune_words(function="only_fp32")]
    start = (sys.executable, "-c", SLOW)
    code, seen = in_a_terminal(tmp_path, [*words, "--max-trials", "1"], start)
    assert code == 3 and "trial 1: eval_func has been running for 0." in seen and "It may hang" in seen
    words[words.index("run")] = "quiet"
    done = subprocess.run(
        [*start, *words, "--max-trials", "1"], cwd=tmp_path, env=environment(), capture_output=True, text=True
    )
    assert done.returncode == 3 and "It may hang" in done.stderr


def test_nothing_but_the_result_is_written_when_there_is_no_terminal(tmp_path: Path) -> None:
    done = tune(make_folder(tmp_path), "--max-trials", 2, function="only_fp32")
    assert done.stderr == "" and done.stdout.startswith("CRITERION NOT MET") and "\x1b" not in done.stdout
