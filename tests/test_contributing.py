"""CONTRIBUTING.md is true: its walk of one fit is the path that a fit takes, and the files that it names exist."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import quaver
from quaver.demo.data import Accuracy, digits
from quaver.demo.run import MODEL, RULES

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
# 1. `tuner/api/fit.py` `fit`: ...
WALK = re.findall(r"^\d+\. `([\w/]+\.py)` `([\w.]+)`", TEXT, re.MULTILINE)


@pytest.fixture(scope="module")
def entered(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, str]]:
    """Return the file and name of each function that one fit calls, in the order of their first calls."""
    train, _, images, labels = digits()
    order: dict[tuple[str, str], None] = {}

    def record(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and "quaver" in frame.f_code.co_filename:
            order.setdefault((frame.f_code.co_filename, frame.f_code.co_qualname))

    sys.setprofile(record)
    try:
        quaver.fit(
            MODEL,
            calib_dataloader=train[:64],
            eval_func=Accuracy(images, labels),
            op_type_dict=RULES,
            objective="latency",
            timing_cache=False,
            workspace=tmp_path_factory.mktemp("walk") / "run",
            verbose=0,
        )
    finally:
        sys.setprofile(None)
    return [(os.path.realpath(file), function) for file, function in order]


def test_the_walk_names_at_most_40_files_and_none_twice() -> None:
    files = [file for file, _ in WALK]
    assert 30 <= len(files) <= 40
    assert len(set(files)) == len(files)


def test_a_fit_enters_the_files_of_the_walk_in_its_order(entered: list[tuple[str, str]]) -> None:
    places = {place: number for number, place in enumerate(entered)}
    steps = [(os.path.realpath(ROOT / file), function) for file, function in WALK]
    missing = [step for step in steps if step not in places]
    assert not missing, f"a fit does not call {missing}"
    assert [places[step] for step in steps] == sorted(places[step] for step in steps)


def test_every_file_that_is_named_exists() -> None:
    folders = "tuner|strategies|adapters|history|diagnosis|insights|tests|benchmarks|examples|docs|tools"
    for path in re.findall(rf"`((?:{folders})/[\w./-]*)`", TEXT):
        assert (ROOT / path).exists() or path.endswith("found/"), f"CONTRIBUTING.md names {path}"
