from __future__ import annotations

import json
import shutil
from pathlib import Path

import onnx
import pytest
from command_samples import make_folder, quaver, tune

import quaver as library

LONG = "a_block/" * 40 + "Gemm"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of which the last trial is the best."""
    made = make_folder(tmp_path_factory.mktemp("history"), last=LONG)
    assert tune(made, function="only_fp32").returncode == 0
    return made


def test_the_table_has_a_row_for_the_baseline_and_each_trial(folder: Path) -> None:
    done = quaver(folder, "history", "run")
    assert done.returncode == 0, done.stderr
    trials = library.read_snapshot(folder / "run").trials
    rows = [line.split() for line in done.stdout.splitlines() if line[:6].strip()]  # without lines of folded cells
    assert rows[0][-1] == "change"
    assert rows[0][:6] == ["trial", "score", "loss", "met", "int8", "fp32"]
    assert all(len(line) <= 80 for line in done.stdout.splitlines()[: len(trials) + 3])
    assert rows[2][:6] == ["fp32", "1", "-", "-", "0", "3"]
    assert rows[3][:6] == ["1", "0.5", "50.00%", "no", "3", "0"]
    last = len(trials)
    assert rows[2 + last][:6] == [f"{last}*", "1", "0.00%", "yes", "0", "3"]
    assert rows[3][-2:] == ["the", "first"]
    assert " KB" in done.stdout and f"{last}*" in done.stdout
    assert f"* trial {last} is the best, but it runs every op in fp32" in done.stdout


def test_the_json_is_complete(folder: Path) -> None:
    told = json.loads(quaver(folder, "history", "run/history.snapshot", "--json").stdout)
    snapshot = library.read_snapshot(folder / "run")
    assert told["best"] == len(snapshot.trials) and told["damage"] is None and told["ops"] == 3
    assert told["baseline"]["score"] == 1.0 and told["baseline"]["model_hash"]
    for shown, trial in zip(told["trials"], snapshot.trials, strict=True):
        assert shown["number"] == trial.number and shown["score"] == trial.score and shown["loss"] == 1.0 - trial.score
        assert shown["fp32_ops"] == list(trial.config.fp32_ops) and shown["model_hash"] == trial.model_hash
        assert shown["int8"] + shown["fp32"] == 3 and shown["error"] is None


def test_damage_is_told(folder: Path, tmp_path: Path) -> None:
    torn = tmp_path / "torn.snapshot"
    torn.write_bytes((folder / "run" / "history.snapshot").read_bytes()[:-5])
    done = quaver(tmp_path, "history", torn)
    assert done.returncode == 0
    assert "DAMAGED: " in done.stdout and "unreadable" in done.stdout
    assert json.loads(quaver(tmp_path, "history", torn, "--json").stdout)["damage"]


def test_what_is_whole_is_written_to_a_new_file_and_what_is_not_is_told(folder: Path, tmp_path: Path) -> None:
    whole = (folder / "run" / "history.snapshot").read_bytes()
    damaged = bytearray(whole)
    damaged[whole.rindex(b"complete")] ^= 1
    path = tmp_path / "history.snapshot"
    path.write_bytes(damaged)
    done = quaver(tmp_path, "history", path, "--repair")
    trials = library.read_snapshot(folder / "run").trials
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("LOST: 1 damaged place(s) skipped: frame ")
    assert lines[1] == f"{len(trials) - 1} trial(s) are in {path}.repaired"
    assert library.read_snapshot(f"{path}.repaired").trials == trials[:-1]
    assert path.read_bytes() == damaged
    assert "nothing is damaged" in quaver(tmp_path, "history", folder / "run", "--repair").stdout


def test_trials_are_judged_by_the_criterion_of_the_latest_run(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    done = tune(
        tmp_path,
        "--relative",
        0.5,
        "--allow-any-loss",
        "--objective",
        "int8_ops",
        "--resume",
        "run",
        function="only_fp32",
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(quaver(tmp_path, "history", "run", "--json").stdout)
    assert told["best"] == 1 and told["trials"][0]["met"] is True


def test_long_names_are_not_cut_when_the_output_is_no_terminal(folder: Path) -> None:
    done = quaver(folder, "show", "run", 1)
    assert done.returncode == 0, done.stderr
    row = next(line.split() for line in done.stdout.splitlines() if LONG in line)
    assert row[:6] == [LONG, "Gemm", "int8", "static", "minmax", "per_channel"]


def test_a_trial_is_shown_as_json(folder: Path) -> None:
    told = json.loads(quaver(folder, "show", "run", 1, "--json").stdout)
    assert told["number"] == 1 and told["score"] == 0.5
    assert [op["op"] for op in told["ops"]] == ["stem/Conv", "body/Conv", LONG]
    assert {op["precision"] for op in told["ops"]} == {"int8"}


def test_the_baseline_is_trial_0_and_unknown_numbers_are_errors(folder: Path) -> None:
    assert quaver(folder, "show", "run", 0).stdout.startswith("the fp32 baseline: score 1")
    done = quaver(folder, "show", "run", 99)
    assert done.returncode == 2 and "has no trial 99; it has 0 to " in done.stderr


def test_two_trials_are_compared(folder: Path) -> None:
    last = len(library.read_snapshot(folder / "run").trials)
    done = quaver(folder, "show", "run", 1, "best")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("trial 1: score 0.5") and lines[1].startswith(f"trial {last}: score 1")
    assert lines[2].split() == ["op", "kind", "trial", "1", "trial", str(last)]
    assert [line.split() for line in lines[4:]] == [
        [op, kind, "int8", "fp32"] for op, kind in (("stem/Conv", "Conv"), ("body/Conv", "Conv"), (LONG, "Gemm"))
    ]
    told = json.loads(quaver(folder, "show", "run", 1, "best", "--json").stdout)
    assert told["first"]["number"] == 1 and told["second"]["number"] == last
    assert next((one["op"], one["now"]["precision"]) for one in told["changes"]) == ("stem/Conv", "fp32")
    assert "both trials run every op in the same way" in quaver(folder, "show", "run", 1, 1).stdout


def test_the_best_trial_and_the_ops_in_fp32_can_be_asked_for(folder: Path) -> None:
    last = len(library.read_snapshot(folder / "run").trials)
    best = quaver(folder, "show", "run", "best", "--fp32")
    assert best.stdout.startswith(f"trial {last}: score 1") and LONG in best.stdout
    assert "no op runs in fp32" in quaver(folder, "show", "run", 1, "--fp32").stdout


def test_each_trial_of_the_json_names_its_parent_and_what_changed(folder: Path) -> None:
    trials = json.loads(quaver(folder, "history", "run", "--json").stdout)["trials"]
    assert trials[0]["parent"] is None and trials[0]["changes"] == []
    for shown in trials[1:]:
        assert shown["parent"] < shown["number"]
        assert all(change["before"] != change["now"] for change in shown["changes"])


def test_recover_writes_the_bytes_that_were_scored(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "trial1.onnx"
    done = quaver(folder, "recover", "model.onnx", "run", 1, "-o", out)
    assert done.returncode == 0, done.stderr
    assert library.read_snapshot(folder / "run").trials[0].model_hash in done.stdout
    onnx.checker.check_model(onnx.load(out))


def test_recover_refuses_another_model(folder: Path, tmp_path: Path) -> None:
    make_folder(tmp_path, gemms=2)
    done = quaver(folder, "recover", tmp_path / "model.onnx", "run", 1, "-o", tmp_path / "out.onnx")
    assert done.returncode == 2 and "belongs to another model" in done.stderr
    assert not (tmp_path / "out.onnx").exists()
