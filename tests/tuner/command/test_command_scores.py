"""Several metrics, slices, confidence and other data on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from command_samples import make_folder, quaver, tune


def test_scores_that_are_yielded_are_judged_stopped_and_confirmed(tmp_path: Path) -> None:
    make_folder(tmp_path)
    with np.load(tmp_path / "test.npz") as test:
        (tmp_path / "slices.txt").write_text("".join(f"class {label}\n" for label in test["labels"]))
    words = (
        "--relative",
        "top1=10%",
        "--slices",
        "slices.txt",
        "--slice-limit",
        "0.99",
        "--confirm",
        "my_eval.py:right",
    )
    done = tune(tmp_path, *words, "--json", function="right")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["met"] and said["trust"]["sure"] is not None and said["best"]["interval"][0] <= said["best"]["loss"]
    assert {limit["slice"] for limit in said["trust"]["limits"]} > {None}
    assert [one["met"] for one in said["trust"]["confirmations"]] == [True]
    shown = quaver(tmp_path, "history", "run")
    assert shown.returncode == 0 and "% confidence that the loss on such data is within all limits" in shown.stdout
    assert "confirmed on other data" in shown.stdout
    listed = json.loads(quaver(tmp_path, "history", "run", "--json").stdout)
    assert listed["trust"]["limits"] == said["trust"]["limits"] and listed["trials"][0]["metrics"].keys() == {"top1"}
    assert all(low <= high for low, high in (trial["interval"] for trial in listed["trials"]))


def test_a_stopped_trial_is_shown_as_one(tmp_path: Path) -> None:
    done = tune(make_folder(tmp_path), "--max-trials", 1, function="half_right")
    assert done.returncode == 3 and "stopped after 16 samples" in done.stderr, done.stderr
    assert "no, 16 samples" in quaver(tmp_path, "history", "run").stdout
    shown = quaver(tmp_path, "show", "run", 1)
    assert "stopped after 16 samples" in shown.stdout and "the loss is" in shown.stdout


def test_what_confirm_refutes_ends_with_3(tmp_path: Path) -> None:
    done = tune(make_folder(tmp_path), "--relative", "20%", "--confirm", "my_eval.py:only_fp32", function="right")
    assert done.returncode == 3, done.stderr
    assert done.stdout.startswith("CRITERION NOT MET ON OTHER DATA") and "NOT confirmed" in done.stdout
