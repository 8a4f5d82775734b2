from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import termios
from pathlib import Path

from command_samples import COMMAND, environment, make_folder, quaver, tune, tune_words

SLOW = """
import sys
import quaver.engine.scoring.evaluate
quaver.engine.scoring.evaluate.SLOW_SECONDS, quaver.engine.scoring.evaluate.SLOW_FACTOR = 0.2, 0
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


def in_a_terminal(folder: Path, words: list[str], start: tuple[str, ...] = COMMAND, **extra: str) -> tuple[int, str]:
    """Run the command with a pseudo-terminal for all its streams."""
    columns = extra.setdefault("COLUMNS", "120")
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (50, int(columns)))
    process = subprocess.Popen(
        [*start, *words], cwd=folder, env=environment(**extra), stdin=theirs, stdout=theirs, stderr=theirs
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
    assert "fp32: score 1" in seen
    for number in (1, 2, 3):
        assert f"trial {number}: score 0.5, loss 50.00%, not met, 3 int8 / 0 fp32 ops" in seen
    assert "| best 0.5 (loss 50.00%, not met)" in seen and " left" in seen
    assert "CRITERION NOT MET" in seen


def test_a_probe_has_a_bar(tmp_path: Path) -> None:
    make_folder(tmp_path)
    (tmp_path / "mine.py").write_text(
        "import quaver\n\n\nclass Mine(quaver.Strategy):\n    name = 'mine'\n\n"
        "    def propose(self, space, probe):\n        yield space.default_config().fallback(*probe.ranking()[:1])\n"
    )
    code, seen = in_a_terminal(tmp_path, tune_words("--strategy", "mine.py:Mine", function="only_fp32"))
    assert code == 3
    assert "measuring the sensitivity of ops" in seen and "1/3" in seen


def test_quiet_leaves_only_the_result(tmp_path: Path) -> None:
    make_folder(tmp_path)
    code, seen = in_a_terminal(tmp_path, tune_words("--quiet", "--relative", 0.05), NO_COLOR="1")
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


def test_without_a_terminal_there_is_a_plain_line_a_stage_and_a_trial(tmp_path: Path) -> None:
    done = tune(make_folder(tmp_path), "--max-trials", 2, "--no-report", function="only_fp32")
    assert done.stdout.startswith("CRITERION NOT MET") and "\x1b" not in done.stdout + done.stderr
    lines = [re.sub(r"[0-9.]+ s", "_", line) for line in done.stderr.splitlines()]
    assert lines[:2] == ["quaver  _  reading the model", "quaver  _  calibrating"]
    assert lines[-3:-1] == [
        "quaver  _  trial 1: score 0.5, loss 50.00%, not met, 3 int8 / 0 fp32 ops, _, best so far",
        "quaver  _  trial 2: score 0.5, loss 50.00%, not met, 3 int8 / 0 fp32 ops, _",
    ]
    assert lines[-1].startswith("quaver  _  done: max_trials reached. ")
    assert "calibrating: _" in lines[-1] and "eval_func: _" in lines[-1]
    quiet = quaver(tmp_path, *tune_words("--quiet", "--workspace", "quiet", "--max-trials", 1, function="only_fp32"))
    assert quiet.stderr == ""


def test_colours_say_met_fp32_and_slower_unless_nobody_wants_them(tmp_path: Path) -> None:
    make_folder(tmp_path)
    code, seen = in_a_terminal(tmp_path, tune_words("--relative", 0.05, "--objective", "size"))
    assert code == 0 and "\x1b[32mCriterion met" in seen
    assert tune(tmp_path, "--workspace", "other", "--max-trials", 1, function="only_fp32").returncode == 3
    yes, no, plain = (
        in_a_terminal(tmp_path, ["history", run], **extra)[1]
        for run, extra in (("run", {}), ("other", {}), ("other", {"NO_COLOR": "1"}))
    )
    assert "\x1b[32myes" in yes and "\x1b[31mno" in no and "\x1b[3" not in plain
    shown = in_a_terminal(tmp_path, ["show", "run", "0"])[1]
    assert shown.count("\x1b[33mfp32") == 3


def test_tables_are_no_wider_than_the_terminal_and_figures_are_not_cut(tmp_path: Path) -> None:
    make_folder(tmp_path, last="a_block/" * 12 + "Gemm")
    assert tune(tmp_path, function="only_fp32").returncode == 0
    for words in (["history", "run"], ["show", "run", "best"], ["show", "run", "1", "best"]):
        code, seen = in_a_terminal(tmp_path, words, COLUMNS="80", NO_COLOR="1")
        rows = re.sub(r"\x1b\[[0-9;]*m", "", seen).splitlines()
        assert code == 0 and max(map(len, rows)) <= 80, seen
    assert "50.00%" in in_a_terminal(tmp_path, ["history", "run"], COLUMNS="80", NO_COLOR="1")[1]


TQDM = """
from tqdm import tqdm
from my_eval import only_fp32


def with_bars(model):
    print("scoring")
    for _ in tqdm(range(3), desc="outer", mininterval=0):
        for _ in tqdm(range(3), desc="inner", leave=False, mininterval=0):
            pass
    return only_fp32(model)
"""


def test_bars_of_eval_func_do_not_break_the_display(tmp_path: Path) -> None:
    make_folder(tmp_path)
    (tmp_path / "bars.py").write_text(TQDM)
    words = [word.replace("my_eval.py:only_fp32", "bars.py:with_bars") for word in tune_words(function="only_fp32")]
    code, seen = in_a_terminal(tmp_path, [*words, "--max-trials", "2"], NO_COLOR="1")
    assert code == 3
    left = on_screen(seen)
    assert [line for line in left if line.startswith("outer")] == [line for line in left if "outer: 100%" in line]
    assert sum("outer: 100%" in line for line in left) == left.count("scoring") == 3  # the baseline and two trials
    assert not any("inner" in line for line in left)
    assert [line for line in left if line.startswith("trial ")] == [
        line for number in (1, 2) for line in left if line.startswith(f"trial {number}: score 0.5")
    ]


def on_screen(seen: str) -> list[str]:
    """What stays of what was written to a terminal: lines that were drawn over are gone."""
    lines, row = [""], 0
    for part in re.findall(r"\r\n|\r|\n|\x1b\[\d*[A-Za-z]|\x1b\[\?\d+[a-z]|[^\r\n\x1b]+", seen):
        if part in ("\r\n", "\n"):
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif part.endswith("A") and part.startswith("\x1b"):
            row -= int(part[2:-1] or 1)
        elif part == "\x1b[2K" or part == "\r":
            lines[row] = "" if part != "\r" else lines[row]
        elif not part.startswith("\x1b"):
            lines[row] += part
    return lines
