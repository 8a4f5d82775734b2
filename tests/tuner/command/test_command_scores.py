"""Several metrics, slices, confidence and other data on the command line."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_samples import make_folder, quaver, tune

from quaver.command import flags


def parsed(*words: str) -> dict[str, Any]:
    parser = argparse.ArgumentParser()
    parser.add_argument("config", nargs="?")
    flags.add(parser)
    return flags.parse_settings(parser.parse_args(words)).explicit


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--relative", "1%"], {"relative": 0.01}),
        (["--relative", "top1=1%", "--relative", "f1=0.02"], {"relative": {"top1": 0.01, "f1": 0.02}}),
        (["--absolute", "0.5"], {"absolute": 0.5}),
        (["--absolute", "wer=0.5"], {"absolute": {"wer": 0.5}}),
        (["--lower-is-better"], {"higher_is_better": False}),
        (["--higher-is-better"], {"higher_is_better": True}),
        (["--lower-is-better", "wer", "--lower-is-better", "cer"], {"higher_is_better": {"wer": False, "cer": False}}),
        (["--confidence", "0.9", "--no-early-stop"], {"confidence": 0.9, "early_stop": False}),
        (["--early-stop-delta", "0.01", "--confirm-tries", "5"], {"early_stop_delta": 0.01, "confirm_tries": 5}),
    ],
)
def test_limits_are_given_for_all_or_by_name(words: list[str], expected: dict[str, Any]) -> None:
    assert parsed(*words) == expected


def test_a_limit_for_all_and_one_by_name_exclude_each_other() -> None:
    with pytest.raises(ValueError, match="--relative is passed for all metrics and for 'f1'"):
        parsed("--relative", "0.01", "--relative", "f1=0.02")


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
    assert "confirmed on other data" in shown.stdout and "interval" in shown.stdout
    listed = json.loads(quaver(tmp_path, "history", "run", "--json").stdout)
    assert listed["trust"]["limits"] == said["trust"]["limits"] and listed["trials"][0]["metrics"].keys() == {"top1"}


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
