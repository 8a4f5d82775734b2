"""`quaver diagnose`, `quaver profile` and `quaver tune --diagnosis` on the command line."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import diagnosis_models as models
import numpy as np
import onnx
import pytest

EVAL = "def always(model):\n    return 1.0\n"
ONE_SCALE = "Conv={weight: {granularity: [per_tensor]}}"


def quaver(folder: Path, *words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "quaver.command.main", *map(str, words)],
        cwd=folder, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, its data, an evaluation, and a run of one trial."""
    place = tmp_path_factory.mktemp("command")
    onnx.save(models.outlying_output_channel(), place / "model.onnx")
    np.savez(place / "calib.npz", x=models.images())
    np.savez(place / "empty.npz", x=models.images(0))
    (place / "my_eval.py").write_text(EVAL)
    done = quaver(
        place, "tune", "--model", "model.onnx", "--calib", "calib.npz", "--eval", "my_eval.py:always", "--diagnosis",
        "--op-type", ONE_SCALE, "--max-trials", 1, "--strategy", "basic", "--workspace", "run", "--threads", 1,
        "-o", "int8.onnx",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (place / "told").write_text(done.stdout)
    return place


def test_tune_with_diagnosis_shows_tables_and_causes(folder: Path) -> None:
    told = (folder / "told").read_text()
    assert "Activations summary" in told and "Weights summary" in told and "The tables are in run." in told
    assert "output channel 5" in told and 'op_name_dict={"second": "fp32"}' in told
    assert (folder / "run" / "activations_table.csv").exists()


def test_diagnose_prints_the_top_rows_and_the_rule_to_paste(folder: Path) -> None:
    done = quaver(
        folder, "diagnose", "model.onnx", "--calib", "calib.npz", "--op-type", ONE_SCALE, "--rows", 1, "--no-timing",
        "-o", "tables",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "... and 1 more" in done.stdout and "Activation min" in done.stdout and "deviation" in done.stdout
    assert 'op_name_dict={"second": "fp32"}' in done.stdout
    assert "Your rules do not allow to give each channel a scale of its own" in done.stdout
    assert "The tables are in tables." in done.stdout
    with open(folder / "tables" / "activations_table.csv", newline="") as file:
        assert [row["OP name"] for row in csv.DictReader(file)] == ["second", "first"]


@pytest.mark.parametrize("words", [("int8.onnx",), ("--history", "run"), ("--history", "run", "--trial", 1)])
def test_diagnose_takes_files_runs_and_trials(folder: Path, words: tuple[object, ...]) -> None:
    done = quaver(folder, "diagnose", "model.onnx", *words, "--calib", "calib.npz", "--no-timing", "--json")
    assert done.returncode == 0, done.stderr
    assert [cause["op"] for cause in json.loads(done.stdout)["causes"]] == ["second"]


def test_a_healthy_model_is_reported_as_healthy(folder: Path) -> None:
    done = quaver(folder, "diagnose", "model.onnx", "--calib", "calib.npz", "--no-timing", "--samples", 8)
    assert done.returncode == 0 and "8 samples" in done.stdout and "no op is bad by itself." in done.stdout


def test_profile_shows_ops_and_latency(folder: Path) -> None:
    words = ("--runs", 3, "--warmup", 1, "--threads", 1)
    done = quaver(folder, "profile", "model.onnx", "--against", "int8.onnx", "--batch", 4, "-o", "profile.csv", *words)
    assert done.returncode == 0, done.stderr
    assert "QLinearConv" in done.stdout and "p99" in done.stdout and "samples/s" in done.stdout
    assert "against / first" in done.stdout and "the full profile is in profile.csv" in done.stdout
    with open(folder / "profile.csv", newline="") as file:
        assert {"first", "second"} <= {row["op"] for row in csv.DictReader(file)}
    done = quaver(folder, "profile", "model.onnx", "--history", "run", "--trial", 1, "--json", *words)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["against"]["runs"] == 3
    assert quaver(folder, "profile", "int8.onnx", *words).returncode == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("diagnose", "model.onnx"), "such as --calib data.npz"),
        (("diagnose", "model.onnx", "--calib", "calib.npz", "--trial", 1), "--trial 1 needs --history RUN"),
        (("diagnose", "model.onnx", "int8.onnx", "--calib", "calib.npz", "--history", "run"), "not both"),
        (("diagnose", "model.onnx", "--calib", "calib.npz", "-o", "model.onnx"), "takes a folder"),
        (("diagnose", "nowhere.onnx", "--calib", "calib.npz"), "nowhere.onnx"),
        (("diagnose", "model.onnx", "--calib", "calib.npz", "--op-type", "Convv=fp32"), "did you mean 'Conv'"),
        (("diagnose", "model.onnx", "--calib", "calib.npz", "--samples", 0), "`samples` must be a whole number"),
        (("diagnose", "model.onnx", "--calib", "calib.npz", "--rows", -1), "--rows takes"),
        (("diagnose", "model.onnx", "--calib", "calib.npz", "-o", "calib.npz/x"), "cannot write the tables into"),
        (("diagnose", "model.onnx", "--calib", "empty.npz"), "no samples"),
        (("profile", "model.onnx", "--trial", 1), "pass --history and --trial together"),
        (("profile", "model.onnx", "--rows", -1), "--rows takes"),
        (("profile", "model.onnx", "-o", "profile.txt"), "ends in .csv or .json"),
        (("profile", "model.onnx", "-o", "nowhere/profile.csv"), "the folder 'nowhere' of -o does not exist"),
        (("profile", "model.onnx", "--runs", 0), "at least 1"),
    ],
)
def test_mistakes_are_named_in_one_paragraph(folder: Path, words: tuple[object, ...], said: str) -> None:
    done = quaver(folder, *words)
    assert done.returncode == 2 and said in done.stderr and done.stderr.count("\n") == 1, done.stderr


def test_warnings_of_the_library_are_shown(folder: Path) -> None:
    done = quaver(folder, "diagnose", "model.onnx", "model.onnx", "--calib", "calib.npz", "--no-timing")
    assert done.returncode == 0 and "no op of the quantized model runs in int8" in done.stderr
    np.savez(folder / "nan.npz", x=np.where(np.arange(64).reshape(-1, 1, 1, 1) == 3, np.nan, models.images()))
    done = quaver(folder, "diagnose", "model.onnx", "--calib", "nan.npz", "--no-timing")
    assert done.returncode == 0 and "only the float model was diagnosed" in done.stderr
    assert "first in sample 3" in done.stdout
    done = quaver(folder, "diagnose", "model.onnx", "--calib", "calib.npz", "--no-timing")
    assert done.returncode == 0 and not done.stderr


def test_in_a_terminal_of_80_columns_tables_and_sentences_are_no_wider(folder: Path) -> None:
    import pty

    for words in (("diagnose", "--calib", "calib.npz", "--no-timing", "--op-type", ONE_SCALE),
                  ("profile", "--against", "int8.onnx", "--runs", "2")):  # fmt: skip
        master, slave = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-m", "quaver.command.main", words[0], "model.onnx", *words[1:]],
            cwd=folder, stdout=slave, stdin=subprocess.DEVNULL, env={**os.environ, "COLUMNS": "80", "NO_COLOR": "1"},
        )  # fmt: skip
        os.close(slave)
        told = ""
        with contextlib.suppress(OSError):  # the other end is closed
            while piece := os.read(master, 65536):
                told += piece.decode()
        os.close(master)
        assert process.wait(60) == 0
        lines = [re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip() for line in told.splitlines()]
        pasted = ("     op_name_dict=", "first: p50", "against: p50")
        assert not [line for line in lines if len(line) > 80 and not line.startswith(pasted)], told
        if words[0] == "profile":
            # Which kernel of an op takes most is chance with two inferences; that there are more is told by "+1".
            assert any(re.match(r"(first|second) +Conv", line) and "%" in line for line in lines), told
