"""Where a command's output goes: JSON stands alone on stdout, and a stdout that cannot be written loses nothing."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from command_samples import COMMAND, environment, make_folder, quaver, tune, tune_words

import quaver as library
from quaver.command.main import main

FULL = Path("/dev/full")

TALKATIVE = """
import os, subprocess, sys
from my_eval import accuracy

print("imported")


def talkative(model):
    print("printed by eval_func")
    os.write(1, b"written to descriptor 1\\n")
    subprocess.run([sys.executable, "-c", "print('printed by a child')"], check=True)
    return accuracy(model)


def long_winded(model):
    print("x" * 100_000, flush=True)
    return accuracy(model)


def unforeseen(model):
    raise KeyboardInterrupt
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = make_folder(tmp_path_factory.mktemp("output"))
    (made / "talk.py").write_text(TALKATIVE)
    assert tune(made, "--workspace", "done", "--relative", "0.05", "-o", "int8.onnx").returncode == 0
    return made


def in_shell(folder: Path, words: Sequence[object], redirection: str) -> subprocess.CompletedProcess[str]:
    """Run a command with stdout as a shell makes it."""
    line = f"{shlex.join([*COMMAND, *map(str, words)])} {redirection}"
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {line}"],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
        stdin=subprocess.DEVNULL,
    )


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_what_eval_func_prints_goes_to_stderr_with_json(folder: Path, tmp_path: Path, jobs: str) -> None:
    words = tune_words("--json", "--workspace", str(tmp_path / "run"), "--relative", "0.05", "--jobs", jobs)
    words[words.index("my_eval.py:accuracy")] = "talk.py:talkative"
    done = quaver(folder, *words)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["met"] is True
    for text in ("imported", "printed by eval_func", "written to descriptor 1", "printed by a child"):
        assert text in done.stderr


def test_without_json_it_stays_on_stdout(folder: Path, tmp_path: Path) -> None:
    words = tune_words("--workspace", str(tmp_path / "run"), "--relative", "0.05")
    words[words.index("my_eval.py:accuracy")] = "talk.py:talkative"
    done = quaver(folder, *words)
    assert done.returncode == 0 and "printed by eval_func" in done.stdout and "Criterion met" in done.stdout


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["tune", "--json", "--max-trails", "3"], 2, "unknown option '--max-trails'"),
        (["tune", "--json"], 2, "pass the float model"),
        (["tune", "--json", "--model", "none.onnx", "--eval", "my_eval.py:accuracy"], 2, "no model file at"),
        (tune_words("--json", "--workspace", "broken", function="broken"), 2, "division by zero"),
        (["tune", "--json", "--model", "model.onnx", "--eval", "talk.py:unforeseen", "--workspace", "stopped"], 130,
         "interrupted before there was a result"),
        (["history", "nowhere", "--json"], 2, "there is no snapshot at nowhere"),
        (["show", "model.onnx", "--json"], 2, "does not say where it comes from"),
        (["check", "model.onnx", "none.onnx", "--json", "--eval", "my_eval.py:accuracy"], 2, "none.onnx"),
    ],
)  # fmt: skip
def test_errors_are_json_on_stdout_and_a_sentence_on_stderr(
    folder: Path,
    words: list[str],
    code: int,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder)
    try:
        assert main(words) == code
    except SystemExit as error:
        assert error.code == code
    done = capfd.readouterr()
    told = json.loads(done.out)
    assert told["exit_code"] == code and message in told["error"] and message in done.err


COMMANDS = {
    "history": ["history", "done"],
    "show as JSON": ["show", "done", "best", "--json"],
    "strategies": ["strategies"],
    "check": ["check", "model.onnx", "int8.onnx", "--eval", "my_eval.py:accuracy", "--confidence", "0"],
    "recover": ["recover", "model.onnx", "done", "1", "-o", "recovered.onnx"],
    "report": ["report", "done", "-o", "report.html"],
    "help": ["--help"],
}  # fmt: skip


@pytest.mark.skipif(not FULL.exists(), reason="needs the device that is always full")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_stdout_is_told_in_one_sentence(folder: Path, command: str) -> None:
    done = in_shell(folder, COMMANDS[command], "> /dev/full")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("quaver: some output was lost because stdout cannot be written (No space left")


@pytest.mark.parametrize("command", ["history", "show as JSON", "recover", "help"])
def test_a_closed_stdout_is_told_in_one_sentence(folder: Path, command: str) -> None:
    done = in_shell(folder, COMMANDS[command], ">&-")
    assert done.returncode == 1 and not done.stdout
    (line,) = done.stderr.splitlines()
    assert line == (
        "quaver: some output was lost because stdout cannot be written (it is closed); everything else was done"
    )


def test_a_reader_that_goes_away_is_told_in_one_sentence(folder: Path) -> None:
    done = in_shell(folder, ["show", "done", "best", "--json"], "| true")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "(its reader closed it)" in line


@pytest.mark.parametrize(
    ("redirection", "extra"), [("> /dev/full", []), (">&-", []), ("| true", []), ("> /dev/full", ["--json"])]
)
def test_a_run_whose_stdout_fails_loses_nothing(
    folder: Path, tmp_path: Path, redirection: str, extra: list[str]
) -> None:
    words = tune_words("--workspace", str(tmp_path / "run"), "--relative", "0.05", "-o", str(tmp_path / "m.onnx"))
    words[words.index("my_eval.py:accuracy")] = "talk.py:long_winded"
    done = in_shell(folder, [*words, *extra], redirection)
    assert done.returncode == 1 and "some output was lost" in done.stderr
    snapshot = library.read_snapshot(tmp_path / "run")
    assert snapshot.trials and not any(trial.failed for trial in snapshot.trials) and snapshot.damage is None
    assert (tmp_path / "m.onnx").read_bytes() == (tmp_path / "run" / "best_model.onnx").read_bytes()
    assert (tmp_path / "run" / "report.html").exists()


def test_files_do_not_get_what_is_printed_to_a_closed_stdout(folder: Path, tmp_path: Path) -> None:
    """The next file that a process opens would get the descriptor of a closed stdout."""
    words = tune_words("--workspace", str(tmp_path / "run"), "--relative", "0.05", "--quiet")
    words[words.index("my_eval.py:accuracy")] = "talk.py:talkative"
    done = in_shell(folder, words, "<&- >&-")
    assert done.returncode == 1, done.stderr
    assert library.read_snapshot(tmp_path / "run").damage is None
    for path in (tmp_path / "run").iterdir():
        assert path.is_dir() or b"descriptor 1" not in path.read_bytes()


@pytest.mark.parametrize("command", ["history", "check", "strategies"])
def test_a_current_folder_that_was_removed_is_named(folder: Path, tmp_path: Path, command: str) -> None:
    (tmp_path / "gone").mkdir()
    line = f"cd {tmp_path}/gone && rmdir {tmp_path}/gone && {shlex.join([*COMMAND, *COMMANDS[command]])}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60, env=environment())
    assert done.returncode == 2
    assert "quaver: the current folder no longer exists" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_a_current_folder_that_is_removed_meanwhile_costs_no_result(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    (tmp_path / "removing.py").write_text(
        f"import os, sys\nsys.path.insert(0, {str(folder)!r})\nfrom my_eval import accuracy as right\n\n\n"
        f"def accuracy(model):\n    if os.path.exists({str(tmp_path / 'gone')!r}):\n"
        f"        os.rmdir({str(tmp_path / 'gone')!r})\n    return right(model)\n"
    )
    done = quaver(
        tmp_path / "gone", "tune", "--model", folder / "model.onnx", "--calib", folder / "calib.npz", "--eval",
        tmp_path / "removing.py:accuracy", "--workspace", tmp_path / "run", "--relative", "0.05", "--strategy", "basic",
    )  # fmt: skip
    assert done.returncode == 0 and "Criterion met" in done.stdout, done.stderr
    assert (tmp_path / "run" / "best_model.onnx").exists()


def test_warnings_are_one_plain_line(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "warns.py").write_text(
        f"import sys, warnings\nsys.path.insert(0, {str(folder)!r})\nfrom my_eval import accuracy as right\n\n\n"
        "def accuracy(model):\n    warnings.warn('two\\nlines')\n    return right(model)\n"
    )
    words = ["tune", "--model", "model.onnx", "--calib", "calib.npz", "--strategy", "basic", "--relative", "0.05",
             "--workspace", tmp_path / "run", "--eval", tmp_path / "warns.py:accuracy", "--quiet"]  # fmt: skip
    done = quaver(folder, *words)
    assert done.returncode == 0
    assert "quaver: two lines" in done.stderr.splitlines()
    assert "UserWarning" not in done.stderr and "warnings.warn" not in done.stderr
    again = quaver(folder, *words[:-5], "--eval", tmp_path / "warns.py:accuracy", "--quiet", "--resume",
                   tmp_path / "run", "--max-trials", "3")  # fmt: skip
    assert "UserWarning" not in again.stderr and "sys.exit" not in again.stderr


def fifo(place: Path) -> Path:
    os.mkfifo(place)
    return place


Refused = Callable[..., str]


@pytest.fixture
def refused(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Refused]:
    """Run a command that must be refused, and not wait for ever for what a pipe will never give."""
    monkeypatch.chdir(folder)

    def run(*words: object) -> str:
        signal.alarm(60)
        assert main([*map(str, words)]) == 2
        return capsys.readouterr().err.splitlines()[-1]

    yield run
    signal.alarm(0)


def test_pipes_are_refused_wherever_a_file_is_read(refused: Refused, tmp_path: Path) -> None:
    pipe = fifo(tmp_path / "pipe")
    for name in ("m.onnx", "m.tflite", "c.npz", "c.npy", "conf.yaml", "e.py", "labels.npy"):
        (tmp_path / name).symlink_to(pipe)
    (tmp_path / "calib").mkdir()
    fifo(tmp_path / "calib" / "batch.npy")
    base = ["tune", "--model", "model.onnx", "--eval", "my_eval.py:accuracy", "--workspace", tmp_path / "run"]
    said = "must be a regular file"
    for words in (
        ["tune", "--model", tmp_path / "m.onnx", "--eval", "my_eval.py:accuracy", "--workspace", tmp_path / "run"],
        ["tune", "--model", tmp_path / "m.tflite", "--eval", "my_eval.py:accuracy", "--workspace", tmp_path / "run"],
        [*base, "--calib", tmp_path / "c.npz"],
        [*base, "--calib", tmp_path / "c.npy"],
        [*base, "--calib", tmp_path / "calib"],
        [*base, "--slices", tmp_path / "pipe"],
        [*base, "--cost-model", tmp_path / "pipe", "--calib", "calib.npz"],
        [*base, "-o", tmp_path / "m.onnx"],
        ["tune", tmp_path / "conf.yaml", *base[1:]],
        ["tune", "--model", "model.onnx", "--eval", f"{tmp_path / 'e.py'}:accuracy"],
        ["check", "model.onnx", tmp_path / "m.onnx", "--eval", "my_eval.py:accuracy"],
        ["check", "model.onnx", "int8.onnx", "--metric", "top1", "--data", "calib.npz", "--labels",
         tmp_path / "labels.npy"],
        ["show", tmp_path / "m.onnx"],
        ["profile", tmp_path / "m.onnx"],
        ["diagnose", tmp_path / "m.onnx", "--calib", "calib.npz"],
        ["recover", tmp_path / "m.onnx", "done", "1", "-o", "out.onnx"],
    ):  # fmt: skip
        line = refused(*words)
        assert said in line and "is a named pipe" in line, line


def test_a_device_is_refused_too_and_never_replaced(refused: Refused, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "zero.npy").symlink_to("/dev/zero")
    words = ["tune", "--model", "model.onnx", "--eval", "my_eval.py:accuracy", "--workspace", tmp_path / "run"]
    assert "is a device" in refused(*words, "--calib", tmp_path / "zero.npy")
    assert "is a device" in refused(*words, "--calib", "calib.npz", "-o", "/dev/null")
    with pytest.raises(library.BuildError, match="pipe or a device"):
        library.recover(folder / "model.onnx", folder / "done", 1).save(fifo(tmp_path / "out.onnx"))


def test_a_pipe_in_place_of_the_timing_cache_is_refused(folder: Path, tmp_path: Path) -> None:
    words = tune_words("--workspace", str(tmp_path / "run"), "--relative", "0.05", "--strategy", "auto")
    done = quaver(folder, *words, QUAVER_CACHE=str(tmp_path / "cache"))
    assert done.returncode == 0, done.stderr
    (kept,) = (tmp_path / "cache" / "timings").glob("*.json")
    kept.unlink()
    fifo(kept)
    again = tune_words("--workspace", str(tmp_path / "again"), "--relative", "0.05", "--strategy", "auto")
    done = quaver(folder, *again, QUAVER_CACHE=str(tmp_path / "cache"))
    assert done.returncode == 2 and "the timing cache" in done.stderr and "is a named pipe" in done.stderr


def test_a_history_that_is_a_pipe_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    fifo(tmp_path / "run" / "history.snapshot")
    done = tune(folder, "--workspace", tmp_path / "run")
    assert done.returncode == 2 and "must be a regular file" in done.stderr


def test_more_samples_than_a_history_holds_are_refused_before_any_evaluation(folder: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "labels.npy", np.zeros(8_400_000, np.int8))
    done = quaver(
        folder, "tune", "--model", "model.onnx", "--calib", "calib.npz", "--metric", "top1", "--data", "calib.npz",
        "--labels", tmp_path / "labels.npy", "--workspace", tmp_path / "run",
    )  # fmt: skip
    assert done.returncode == 2 and "8,400,000 scores of samples are more than the 8,257,536" in done.stderr
    assert not (tmp_path / "run").exists()
